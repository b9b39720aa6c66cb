package dbtable_test

import (
	"embed"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"inbox_messages", "app.Inbox", "_1", strings.Repeat("a", 48)} {
		require.NoError(t, dbtable.CheckName(name, "inbox_messages"))
	}
	for _, name := range []string{"", "1a", "a-b", "a b", "a;b", `a"b`, "a.b.c", ".a", strings.Repeat("a", 49), "ä", "a\n"} {
		require.ErrorContains(t, dbtable.CheckName(name, "inbox_messages"), `as in "app.inbox_messages"`, "%q", name)
	}
}

//go:embed testdata
var statements embed.FS

func TestCheckAmong(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"first", "SECOND", "third"} {
		require.ErrorContains(t, dbtable.CheckAmong(name, statements, "testdata"), name)
	}
	for _, name := range []string{"fourth", "words", "app.first", "firsts", "outbox_messages"} {
		require.NoError(t, dbtable.CheckAmong(name, statements, "testdata"), name)
	}
	require.ErrorContains(t, dbtable.CheckAmong("first", statements, "missing"), "missing")
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	steps, err := dbtable.Migrations(fstest.MapFS{
		"0001_first.sql":  {Data: []byte("CREATE TABLE {{table}} (CONSTRAINT {{name}}_pkey)")},
		"0002_second.sql": {Data: []byte("two")},
	}, "app.t")
	require.NoError(t, err)
	require.Equal(t, []dbtable.Migration{{1, "first", "CREATE TABLE app.t (CONSTRAINT t_pkey)"}, {2, "second", "two"}}, steps)
	require.Equal(t, "0002_second", steps[1].String())

	_, err = dbtable.Migrations(fstest.MapFS{"0002_second.sql": {}}, "t")
	require.EqualError(t, err, "migration 0002_second.sql: want version 0001 here")
}
