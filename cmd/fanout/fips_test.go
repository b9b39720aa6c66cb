package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The program starts, and its commands work, where only what FIPS 140 allows may be computed.
func TestFIPS(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), self, "-test.v", "-test.run=^(TestRequeueAGroup|TestPurge|TestList|TestReplaySince)/sqlite$")
	child.Env = append(os.Environ(), "GODEBUG=fips140=only", "FANOUT_TEST_LONG=1")
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS", "it has run tests")
}
