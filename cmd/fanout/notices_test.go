package main

import (
	"bytes"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// All that the tests' build links, and that is not only the tests', has its licenses in the notices.
func TestNotices(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitDone, run(t.Context(), []string{"notices"}, nil, &stdout, &stderr), stderr.String())
	assert.Empty(t, stderr.String())
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	linked := 0
	tests := []string{ // and what these need
		"github.com/Shopify/toxiproxy/v2", "github.com/davecgh/go-spew", "github.com/pmezard/go-difflib", "github.com/stretchr/testify", "go.uber.org/goleak",
		"gopkg.in/yaml.v3", "pgregory.net/rapid",
	}
	for _, module := range info.Deps {
		if !strings.HasPrefix(module.Path, "github.com/gorm-fanout/") && !slices.Contains(tests, module.Path) {
			linked++
			assert.Contains(t, stdout.String(), module.Path+"@"+module.Version+" (", "make tidy writes cmd/fanout/notices.txt")
		}
	}
	assert.Greater(t, linked, 50)
}
