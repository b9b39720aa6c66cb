package testservers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePostgresVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		said         string
		major, minor int
		ok           bool
	}{
		{"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", 15, 18, true},
		{"postgres (PostgreSQL) 17.2 (Homebrew)\n", 17, 2, true},
		{"postgres (PostgreSQL) 9.6.24\n", 9, 6, true},
		{"postgres (PostgreSQL) 19beta1\n", 19, 0, true},
		{"postgres (PostgreSQL) 20devel\n", 20, 0, true},
		{"postgres (SomethingElse) 3.1\n", 0, 0, false},
		{"", 0, 0, false},
	} {
		major, minor, ok := parsePostgresVersion(tt.said)
		require.Equal(t, tt.major, major, tt.said)
		require.Equal(t, tt.minor, minor, tt.said)
		require.Equal(t, tt.ok, ok, tt.said)
	}
}

func TestNewest(t *testing.T) {
	t.Parallel()
	_, ok := newest(nil)
	require.False(t, ok)
	best, ok := newest([]installation{
		{bin: "9.6", major: 9, minor: 6}, // as text it would be the highest
		{bin: "16.2", major: 16, minor: 2},
		{bin: "16.10", major: 16, minor: 10},
		{bin: "15.18", major: 15, minor: 18},
	})
	require.True(t, ok)
	require.Equal(t, "16.10", best.bin)
}

func TestFindPostgresTakesTheVariablesWord(t *testing.T) {
	t.Setenv(PostgresBinVariable, t.TempDir())
	_, ok := findPostgres(t.Context())
	require.False(t, ok, "a wrong directory is not replaced by another one")
}
