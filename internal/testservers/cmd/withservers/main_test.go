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

// withservers prepares the command with the given arguments and the servers of this test run.
func withservers(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainVariable+"=1", testservers.RedisVariable+"="+testenv.Redis(t),
		testservers.PostgresVariable+"="+testenv.Postgres(t), testservers.ToxiproxyVariable+"="+testenv.Toxiproxy(t),
		testservers.RabbitMQVariable+"="+testenv.RabbitMQ(t))
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
	cmd := withservers(t, "--", "sh", "-c", `cat; echo "$FANOUT_TEST_POSTGRES $FANOUT_TEST_REDIS $FANOUT_TEST_TOXIPROXY"; exit 7`)
	cmd.Stdin, cmd.Stderr = strings.NewReader("input "), &stderr
	out, err := cmd.Output()
	require.Equal(t, 7, exitCode(t, err))
	require.Regexp(t, `^input postgres\S* redis\S* http\S*\n$`, string(out))
	require.Regexp(t, `(?m)^PostgreSQL \d.*FANOUT_TEST_POSTGRES$`, stderr.String())
	require.Regexp(t, `(?m)^Redis \d.*FANOUT_TEST_REDIS$`, stderr.String())
	require.Regexp(t, `(?m)^toxiproxy .*FANOUT_TEST_TOXIPROXY$`, stderr.String())
	require.Regexp(t, `withservers: \d+ s, of which the servers took \d+ s to start\n$`, stderr.String())
}

// Each version that can be had gets its run, with the first exit code that is not zero; one that
// cannot is said.
func TestEachPostgres(t *testing.T) {
	t.Parallel()
	versions := func(majors string) *exec.Cmd {
		cmd := withservers(t, "-each-postgres", "--", "sh", "-c", `echo "$FANOUT_TEST_POSTGRES $FANOUT_TEST_SERVERS"; exit 7`)
		cmd.Env = append(cmd.Env, testservers.PostgresVersionsVariable+"="+majors, testservers.InstallVariable+"=0",
			testservers.PostgresVariable+"_98="+testenv.Postgres(t))
		return cmd
	}
	var stderr strings.Builder
	cmd := versions("98 99")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.Equal(t, 7, exitCode(t, err))
	require.Regexp(t, `^postgres\S* \{.*"FANOUT_TEST_POSTGRES":"PostgreSQL [\d.]+".*\}\n$`, string(out))
	require.Contains(t, stderr.String(), "no PostgreSQL 99, so its tests are skipped: "+testservers.InstallVariable+"=0 forbids")
	require.Contains(t, stderr.String(), testservers.PostgresVariable+"_99")

	require.NoError(t, versions("none").Run())
	require.Equal(t, exitUsage, exitCode(t, versions("newest").Run()))
}

func TestPassesSignalsOn(t *testing.T) {
	t.Parallel()
	cmd := withservers(t, "--", os.Args[0], catchTERM)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Equal(t, "caught\n", string(rest))
	require.Equal(t, 3, exitCode(t, cmd.Wait()))
}

func TestExitCodesOfItsOwn(t *testing.T) {
	t.Parallel()
	_, err := withservers(t, "true").Output()
	require.Equal(t, exitUsage, exitCode(t, err))

	_, err = withservers(t, "--", "/nonexistent/command").Output()
	require.Equal(t, exitCannotRun, exitCode(t, err))

	for _, dead := range []string{testservers.RedisVariable + "=redis://127.0.0.1:1/0", testservers.ToxiproxyVariable + "=http://127.0.0.1:1"} {
		cmd := withservers(t, "--", "true")
		cmd.Env = append(cmd.Env, dead)
		_, err = cmd.Output()
		require.Equal(t, exitNoServers, exitCode(t, err), dead)
	}
}
