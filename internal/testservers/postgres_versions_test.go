package testservers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPostgresVersions(t *testing.T) {
	for chosen, want := range map[string][]int{"": {14, 18}, "none": nil, "14 16 18": {14, 16, 18}} {
		t.Setenv(PostgresVersionsVariable, chosen)
		majors, err := PostgresVersions()
		require.NoError(t, err)
		require.Equal(t, want, majors, chosen)
	}
	for _, wrong := range []string{"9", "14,16", "newest"} {
		t.Setenv(PostgresVersionsVariable, wrong)
		_, err := PostgresVersions()
		require.ErrorContains(t, err, PostgresVersionsVariable, wrong)
	}
}

// Links are made where the list says, as far as they remain among the package's files.
func TestLinkPostgres(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "native")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "lib"), 0o700))
	list := func(text string) error {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pg-symlinks.json"), []byte(text), 0o600))
		return linkPostgres(dir)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lib", "libpq.so.5.14"), []byte("pq"), 0o600))
	require.NoError(t, list(`[{"source": "native/lib/libpq.so.5.14", "target": "native/lib/libpq.so"}]`))
	said, err := os.ReadFile(filepath.Join(dir, "lib", "libpq.so"))
	require.NoError(t, err)
	require.Equal(t, "pq", string(said))
	require.Error(t, list(`[{"source": "native/lib/libpq.so.5.14", "target": "../outside"}]`))
	require.Error(t, list(`no list`))
}

// A copy is made by a pg_basebackup that is as new as the server.
func TestCopies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, said := range map[string]string{"postgres": "17.1", "initdb": "17.1", "old": "15.18", "same": "17.9", "new": "18.1"} {
		script := "#!/bin/sh\necho '" + name + " (PostgreSQL) " + said + "'\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
	for backup, want := range map[string]bool{"old": false, "same": true, "new": true, "none": false} {
		require.Equal(t, want, copies(t.Context(), filepath.Join(dir, backup), dir), backup)
	}
}
