package testservers

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func managerNamed(t *testing.T, name string) manager {
	t.Helper()
	found, ok := findManager(func(command string) (string, error) {
		if command == name {
			return "/usr/bin/" + name, nil
		}
		return "", exec.ErrNotFound
	})
	require.True(t, ok)
	return found
}

func TestInstallLine(t *testing.T) {
	t.Parallel()
	both, onlyRedis := []*service{postgres, redis}, []*service{redis}
	for _, tt := range []struct {
		manager string
		elevate []string
		missing []*service
		want    []string
	}{
		{"apt-get", nil, both, []string{
			"env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "SYSTEMD_OFFLINE=1",
			"apt-get", "install", "-y", "--no-install-recommends", "postgresql", "redis-server",
		}},
		{"apt-get", []string{"sudo", "-n"}, onlyRedis, []string{
			"sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "SYSTEMD_OFFLINE=1",
			"apt-get", "install", "-y", "--no-install-recommends", "redis-server",
		}},
		{"dnf", nil, both, []string{"dnf", "install", "-y", "/usr/bin/postgres", "/usr/bin/redis-server"}},
		{"apk", nil, both, []string{"apk", "add", "--no-cache", "postgresql", "redis"}},
		{"pacman", nil, onlyRedis, []string{"pacman", "-S", "--noconfirm", "--needed", "valkey"}},
		{"brew", nil, both, []string{
			"env", "NONINTERACTIVE=1", "HOMEBREW_NO_AUTO_UPDATE=1", "brew", "install", "postgresql@17", "redis",
		}},
	} {
		m := managerNamed(t, tt.manager)
		require.Equal(t, tt.want, m.line(tt.elevate, m.installArgs(tt.missing)))
	}
}

func TestEveryManagerKnowsEveryPackage(t *testing.T) {
	t.Parallel()
	for _, m := range managers {
		for _, svc := range []*service{postgres, redis, mysql, rabbitMQ} {
			require.NotEmpty(t, m.packages[svc.name], "%s of %s", svc.name, m.command)
		}
	}
}

func TestElevation(t *testing.T) {
	t.Parallel()
	apt, brew := managerNamed(t, "apt-get"), managerNamed(t, "brew")
	sudo := func(answer error) runner {
		return func(_ context.Context, name string, args ...string) (string, error) {
			require.Equal(t, []string{"sudo", "-n", "true"}, append([]string{name}, args...))
			return "", answer
		}
	}
	prefix, reason := elevation(t.Context(), apt, 0, nil)
	require.Empty(t, prefix)
	require.Empty(t, reason)

	prefix, reason = elevation(t.Context(), apt, 1000, sudo(nil))
	require.Equal(t, []string{"sudo", "-n"}, prefix)
	require.Empty(t, reason)

	_, reason = elevation(t.Context(), apt, 1000, sudo(errors.New("a password is required")))
	require.Contains(t, reason, "password")

	prefix, reason = elevation(t.Context(), brew, 1000, nil)
	require.Empty(t, prefix)
	require.Empty(t, reason)

	_, reason = elevation(t.Context(), brew, 0, nil)
	require.Contains(t, reason, "root")
}

func TestNotInstalledSaysWhatToDo(t *testing.T) {
	t.Parallel()
	err := notInstalled([]*service{postgres, redis}, "installing needs a password", "sudo pkg add 100%")
	require.ErrorIs(t, err, errNotInstalled)
	require.ErrorContains(t, err, "PostgreSQL and Redis")
	require.ErrorContains(t, err, "\n    sudo pkg add 100%\n")
	require.ErrorContains(t, err, "FANOUT_TEST_POSTGRES and FANOUT_TEST_REDIS")
}
