//go:build unix

package child_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// patience is only ever used up by a test that fails.
const patience = time.Minute

// shell starts a shell script that has printed "ready" when the function returns.
func shell(t *testing.T, script string) *child.Child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	out, in, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = in
	c, err := child.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Stop(child.Step{Signal: syscall.SIGKILL, Patience: patience}))
		require.NoError(t, out.Close())
	})
	require.NoError(t, in.Close())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return c
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	c := shell(t, "echo ready; exit 7")
	require.Error(t, c.Wait())
	require.Equal(t, 7, c.ExitCode())
	require.NoError(t, c.Signal(syscall.SIGTERM), "a process that has ended is left alone")
}

func TestStopGoesOnToTheNextSignal(t *testing.T) {
	t.Parallel()
	c := shell(t, `trap '' INT; echo ready; exec sleep 600`)
	require.NoError(t, c.Stop(
		child.Step{Signal: syscall.SIGINT, Patience: 0},
		child.Step{Signal: syscall.SIGKILL, Patience: patience}))
	require.Equal(t, 128+9, c.ExitCode())
}

func TestSignalReachesTheGroup(t *testing.T) {
	t.Parallel()
	// The shell's own child holds the pipe open; its end is seen as the end of the file.
	out, in, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 600; true")
	cmd.Stdout = in
	c, err := child.Start(cmd)
	require.NoError(t, err)
	require.NoError(t, in.Close())
	require.NoError(t, c.Stop(child.Step{Signal: syscall.SIGTERM, Patience: patience}))
	require.NoError(t, out.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadAll(out)
	require.NoError(t, err)
}

func TestStartReportsAMissingCommand(t *testing.T) {
	t.Parallel()
	_, err := child.Start(exec.CommandContext(t.Context(), "/nonexistent/server"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
