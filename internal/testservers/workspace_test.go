package testservers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServerEnvironDropsWhatSteersAServer(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		[]string{"HOME=/home/me", "PATH=/bin", "LC_ALL=C"},
		serverEnviron([]string{"PGPORT=1", "HOME=/home/me", "LC_ALL=fr_FR", "LANG=de_DE", "PGDATA=/x", "PATH=/bin"}))
}

func TestTraversable(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(t.TempDir(), "closed")
	inside := filepath.Join(closed, "open")
	require.NoError(t, os.MkdirAll(inside, 0o755))
	require.NoError(t, os.Chmod(closed, 0o700))

	found, err := traversable(inside, "/")
	require.NoError(t, err)
	require.Equal(t, "/", found, "an open directory in a closed one cannot be reached")

	_, err = traversable(inside)
	require.ErrorContains(t, err, "TMPDIR")
}

func TestUnprivileged(t *testing.T) {
	t.Parallel()
	who, err := unprivileged(1000)
	require.NoError(t, err)
	require.Nil(t, who, "an ordinary user stays itself")

	who, err = unprivileged(0)
	if err == nil { // on a machine without both users there is no such account
		require.NotZero(t, who.uid)
	}
}
