//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// mainVariable makes this test binary the command itself, and with the argument catchTERM the
// command that it runs.
const (
	mainVariable = "FANOUT_WITHSERVERS_TEST"
	catchTERM    = "catch-term"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(mainVariable) == "":
		os.Exit(m.Run())
	case os.Args[1] == catchTERM:
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, syscall.SIGTERM)
		fmt.Println("ready")
		<-caught
		fmt.Println("caught")
		os.Exit(3)
	default:
		main()
	}
}

// withservers prepares the command with the given arguments and a Redis that a variable names.
func withservers(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainVariable+"=1", testservers.RedisVariable+"=redis://given")
	return cmd
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}

func TestRunsTheCommandWithServers(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	cmd := withservers(t, "-with", "redis", "--", "sh", "-c", `cat; echo "$FANOUT_TEST_REDIS"; exit 7`)
	cmd.Stdin, cmd.Stderr = strings.NewReader("input "), &stderr
	out, err := cmd.Output()
	require.Equal(t, 7, exitCode(t, err))
	require.Equal(t, "input redis://given\n", string(out))
	require.Regexp(t, `^Redis: given by FANOUT_TEST_REDIS\nwithservers: \d+ s, of which the servers took 0 s to start\n$`, stderr.String())
}

// A server that was started is there for the command, and gone, with its files, when a signal has ended
// the command; so is it when the parent dies, as with go run.
func TestStopsTheServers(t *testing.T) {
	t.Parallel()
	testenv.Optional(t, testservers.RedisBinVariable)
	for _, orphaned := range []bool{false, true} {
		args := []string{"-with", "redis", "--", os.Args[0], catchTERM}
		cmd := withservers(t, args...)
		if orphaned {
			cmd = exec.CommandContext(t.Context(), "sh", append([]string{"-c", `"$0" "$@" & wait`, os.Args[0]}, args...)...)
		}
		dir := t.TempDir()
		cmd.Env = append(os.Environ(), mainVariable+"=1", testservers.RedisVariable+"=", "FANOUT_TEST_FSYNC=", "TMPDIR="+dir)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewReader(stdout)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "ready\n", line)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, 1)

		if orphaned {
			require.NoError(t, cmd.Process.Kill())
		} else {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
		rest, err := io.ReadAll(lines) // until the last process with this pipe has ended
		require.NoError(t, err)
		require.Equal(t, "caught\n", string(rest))
		if err := cmd.Wait(); !orphaned {
			require.Equal(t, 3, exitCode(t, err))
		}
		files, err = os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, files)
	}
}

func TestExitCodesOfItsOwn(t *testing.T) {
	t.Parallel()
	for code, args := range map[int][]string{
		exitUsage:     {"--", "true"},
		exitCannotRun: {"-with", "redis", "--", "/nonexistent/command"},
		exitNoServers: {"-with", "oracle", "--", "true"},
	} {
		_, err := withservers(t, args...).Output()
		require.Equal(t, code, exitCode(t, err), args)
	}
}
