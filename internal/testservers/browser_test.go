package testservers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A browser that is named is taken; where none can be had the servers are had all the same, and the
// log says what that means.
func TestBrowser(t *testing.T) { //nolint:paralleltest // the environment
	dir := t.TempDir()
	named := filepath.Join(dir, "browser")
	require.NoError(t, os.WriteFile(named, []byte("#!/bin/sh\n"), 0o700))
	t.Setenv("PATH", dir)
	t.Setenv(InstallVariable, "0")

	var log strings.Builder
	s := &Servers{log: &log, binaries: map[string]string{}}
	t.Setenv(ChromiumVariable, named)
	s.findBrowser(t.Context())
	assert.Equal(t, named, s.binaries[chromiumName])
	assert.Empty(t, log.String())

	t.Setenv(ChromiumVariable, "")
	s = &Servers{log: &log, binaries: map[string]string{}}
	s.findBrowser(t.Context())
	assert.Empty(t, s.binaries)
	assert.Contains(t, log.String(), "the tests of the dashboard are skipped")
}
