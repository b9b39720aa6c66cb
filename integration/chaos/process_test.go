//go:build unix

package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script makes a process whose program is a shell script. It writes its clock's skew into a file
// and does what another file says.
func script(t *testing.T) (p *process, say func(string), started func(n int) []string) {
	t.Helper()
	dir := t.TempDir()
	program, said, log := filepath.Join(dir, "program"), filepath.Join(dir, "say"), filepath.Join(dir, "started")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho $CHAOS_SKEW >> "+log+"\necho the last words >&2\n. "+said+"\n"), 0o700))
	p = &process{name: "a", dir: dir, program: func(time.Duration) string { return program }}
	say = func(text string) {
		require.NoError(t, os.WriteFile(said+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(said+".new", said))
	}
	started = func(n int) (lines []string) {
		require.Eventually(t, func() bool {
			text, _ := os.ReadFile(log)
			lines = strings.Fields(string(text))
			return len(lines) >= n
		}, time.Minute, time.Millisecond)
		return lines
	}
	return p, say, started
}

// One that cannot do its work is started again; any other end of its own is a crash, and so is one
// that SIGTERM does not bring about well.
func TestProcessEndsByItself(t *testing.T) {
	t.Parallel()
	p, say, started := script(t)
	say("exit 3")
	require.NoError(t, p.run(t.Context()))
	started(2)
	say("exit 2")
	started(4)
	say("trap 'exit 5' TERM; echo listening >> " + p.path("listening") + "; while :; do sleep 0.01; done")
	require.Eventually(t, func() bool { _, err := os.Stat(p.path("listening")); return err == nil }, time.Minute, time.Millisecond)
	p.close()
	assert.Positive(t, p.away)
	require.GreaterOrEqual(t, len(p.crashed), 2)
	assert.Contains(t, p.crashed[0], "exit code 2")
	assert.Contains(t, p.crashed[0], "the last words")
	assert.Contains(t, p.crashed[len(p.crashed)-1], "exit code 5")
}
