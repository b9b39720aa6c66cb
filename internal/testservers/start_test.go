package testservers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programs replaces PATH by these scripts and those that they need; each writes its arguments to the
// file whose content calls returns.
func programs(t *testing.T, scripts map[string]string) (dir string, calls func() string) {
	t.Helper()
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	for name, script := range scripts {
		text := "#!/bin/sh\necho " + name + " \"$@\" >>" + log + "\n" + script + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	t.Setenv("PATH", dir)
	return dir, func() string {
		said, err := os.ReadFile(log)
		require.NoError(t, err)
		return string(said)
	}
}

// elevated begins a command of the package manager.
func elevated() string {
	if os.Geteuid() == 0 {
		return ""
	}
	return "sudo -n "
}

// without takes the servers of this run out of the environment.
func without(t *testing.T) {
	t.Helper()
	for _, k := range kinds {
		for _, variable := range []string{k.variable, k.binVariable} {
			if variable != "" {
				t.Setenv(variable, "")
			}
		}
	}
}

// One command installs all that is missing, after another one has fetched the lists.
func TestInstall(t *testing.T) {
	dir, calls := programs(t, map[string]string{
		"sudo": `shift; exec "$@"`, "env": `while [ "${1#*=}" != "$1" ]; do shift; done; exec "$@"`,
		"apt-get": `[ -e "$0.lists" ] || { [ "$1" = update ] && echo >"$0.lists"; }`,
	})
	var log strings.Builder
	require.NoError(t, install(t.Context(), &log, []string{"redis", "mariadb"}))
	const line = "apt-get install -y --no-install-recommends redis-server mariadb-server-core mariadb-client-core\n"
	require.Equal(t, 2, strings.Count(calls(), "\n"+line))
	require.Contains(t, calls(), "\napt-get update\n")
	require.Contains(t, log.String(), "package manager: "+elevated()+"env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 SYSTEMD_OFFLINE=1 "+line)

	require.ErrorContains(t, install(t.Context(), &log, []string{"pubsub"}), "apt-get has no package")
	t.Setenv(InstallVariable, "0")
	require.ErrorContains(t, install(t.Context(), &log, []string{"redis"}), "by hand: sudo apt-get update && sudo apt-get install -y --no-install-recommends redis-server")
	require.NoError(t, os.Remove(filepath.Join(dir, "apt-get")))
	require.ErrorContains(t, install(t.Context(), &log, []string{"redis"}), "no binary is here, nor a package manager")
}

// Variables are believed, containers come before binaries, and a server that cannot be had is an error
// unless it is optional.
func TestStart(t *testing.T) {
	without(t)
	_, calls := programs(t, map[string]string{"docker": `case $* in *port*) echo 127.0.0.1:5;; esac`})
	t.Setenv(RedisVariable, "redis://given")
	t.Setenv(ChromiumVariable, "/opt/chromium")
	var log strings.Builder
	servers, err := Start(t.Context(), &log, false, "redis", "postgres", "postgres14", "chromium")
	require.NoError(t, err)
	require.Subset(t, servers.Environ(), []string{
		"FANOUT_TEST_REDIS=redis://given", "FANOUT_TEST_POSTGRES=postgres://postgres:fanout@127.0.0.1:5/postgres?sslmode=disable",
		"FANOUT_TEST_CHROMIUM=/opt/chromium",
	})
	require.Equal(t, "redis://given", servers.URL("redis"))
	require.Contains(t, log.String(), "\nRedis: given by FANOUT_TEST_REDIS\n")
	require.NoError(t, servers.Stop())
	require.Contains(t, calls(), " up --detach --wait postgres postgres14\n")
	require.Regexp(t, `project-name \S+ down --volumes --timeout 5\n$`, calls())

	programs(t, map[string]string{"docker": "exit 1"})
	_, err = Start(t.Context(), &log, false, "redis", "postgres99")
	require.ErrorIs(t, err, errUnavailable)
	require.ErrorContains(t, err, "or set FANOUT_TEST_POSTGRES_99 or FANOUT_TEST_POSTGRES_BINDIR")
	log.Reset()
	servers, err = Start(t.Context(), &log, true, "redis", "postgres99")
	require.NoError(t, err)
	require.Equal(t, "redis://given", servers.URL("redis"))
	require.Contains(t, log.String(), "Tests that need PostgreSQL are skipped.")
	for _, unknown := range []string{"oracle", "postgres9", "14"} {
		_, err = Start(t.Context(), &log, true, unknown)
		require.ErrorContains(t, err, "postgres, redis, mariadb, mysql, rabbitmq, nats, kafka, pubsub, chromium")
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	require.Equal(t, "needs RabbitMQ: .ci/run starts it (or set FANOUT_TEST_RABBITMQ_BIN)", Needs(RabbitMQBinVariable))
	require.Equal(t, "needs SQL Server: set FANOUT_TEST_SQLSERVER", Needs(SQLServerVariable))
	require.ErrorIs(t, needsError(RedisVariable), ErrNoBinary)
}

// What was fetched once is not fetched again, and what was fetched in part never counts.
func TestCached(t *testing.T) {
	if os.Geteuid() == 0 {
		require.NoError(t, os.RemoveAll(filepath.Join(cacheDir(), "test")))
	} else {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		t.Setenv("HOME", t.TempDir())
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(filepath.Join(cacheDir(), "test"))) })
	var log strings.Builder
	refused := errors.New("connection refused")
	fill := func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte("whole"), 0o600) }
	_, err := cached(&log, "test/thing", "Thing", func(dir string) error { return errors.Join(fill(dir), refused) })
	require.ErrorIs(t, err, refused)
	dir, err := cached(&log, "test/thing", "Thing", fill)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "file"))
	t.Setenv(InstallVariable, "0")
	_, err = cached(&log, "test/thing", "Thing", func(string) error { return refused })
	require.NoError(t, err)
	_, err = cached(&log, "test/other", "Thing", fill)
	require.ErrorContains(t, err, InstallVariable)
}
