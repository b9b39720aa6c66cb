package sqlserver

import (
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

func versions(values ...driver.Value) reply {
	s := set{columns: []string{"fanout_version"}}
	for _, v := range values {
		s.rows = append(s.rows, []driver.Value{v})
	}
	return reply{sets: []set{s}}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	steps, err := Migrations("app.outbox")
	require.NoError(t, err)
	store, server := newFake(t, "app.outbox", inTurn(reply{}, reply{}, versions(), reply{}, reply{}))
	applied, err := store.Migrate(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"0001_outbox"}, applied)
	assert.Equal(t, []string{
		"BEGIN", "SET XACT_ABORT ON; SET NOCOUNT ON", store.sql.migrate, store.sql.applied, steps[0].SQL, store.sql.record, "COMMIT",
	}, server.texts())
	assert.Equal(t, map[string]any{"lock": "fanout:migrate:outbox"}, server.requests[2].args)
	assert.Equal(t, map[string]any{"version": 1, "name": "outbox"}, server.requests[5].args)
	assert.Empty(t, server.requests[4].args, "a batch of its own: with parameters it would be a procedure")

	store, server = newFake(t, "app.outbox", inTurn(reply{}, reply{}, versions(int64(1))))
	applied, err = store.Migrate(t.Context())
	require.NoError(t, err)
	assert.Empty(t, applied)
	assert.Equal(t, "COMMIT", server.texts()[4])
}

func TestMigrateFails(t *testing.T) {
	t.Parallel()
	for number, remedy := range map[int32]string{
		2760: "create the schema first", 2714: "app.outbox_migrations", 262: "may create tables", 1934: "QUOTED_IDENTIFIER",
	} {
		store, server := newFake(t, "app.outbox", inTurn(reply{}, reply{}, versions(), reply{err: serverError(number)}))
		_, err := store.Migrate(t.Context())
		require.ErrorContains(t, err, "sqlserver: migrate app.outbox: step 0001_outbox: ")
		require.ErrorContains(t, err, remedy)
		require.NotErrorIs(t, err, outbox.ErrSchema, "it would tell to run what has just been run")
		assert.Equal(t, "ROLLBACK", server.texts()[5])
	}
	// The deadlock of two migrations is nobody's fault.
	store, _ := newFake(t, "app.outbox", inTurn(reply{}, reply{err: serverError(1205)}, reply{}, reply{}, versions(int64(1))))
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	updateability := func(v driver.Value) reply {
		return reply{sets: []set{{columns: []string{"fanout_updateability"}, rows: [][]driver.Value{{v}}}}}
	}
	missing := func(names ...driver.Value) reply {
		s := set{columns: []string{"fanout_missing"}}
		for _, name := range names {
			s.rows = append(s.rows, []driver.Value{name})
		}
		return reply{sets: []set{s}}
	}
	primary := updateability("READ_WRITE")
	for _, c := range []struct {
		name    string
		replies []reply
		wants   string
		schema  bool
	}{
		{name: "up to date", replies: []reply{primary, missing(), versions(int64(1))}},
		{name: "made by another tool", replies: []reply{primary, missing(), versions(nil)}},
		{name: "a server that knows no replicas", replies: []reply{{err: serverError(195)}, missing(), versions(int64(1))}},
		{name: "a server that does not say", replies: []reply{updateability(nil), missing(), versions(int64(1))}},
		{name: "replica", replies: []reply{updateability("READ_ONLY")}, wants: "point the relay at the primary"},
		{name: "no table", replies: []reply{primary, missing("table app.outbox")}, wants: "(missing: table app.outbox)", schema: true},
		{name: "parts", replies: []reply{primary, missing("column lane", "index outbox_open")}, wants: "column lane, index outbox_open", schema: true},
		{name: "step", replies: []reply{primary, missing(), versions()}, wants: "step 0001_outbox", schema: true},
		{name: "old database", replies: []reply{primary, {err: serverError(102)}}, wants: "compatibility level"},
	} {
		store, _ := newFake(t, "app.outbox", inTurn(c.replies...))
		err := store.Check(t.Context())
		if c.wants == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorContains(t, err, "sqlserver: check app.outbox: ", c.name)
		require.ErrorContains(t, err, c.wants, c.name)
		if c.schema {
			require.ErrorIs(t, err, outbox.ErrSchema, c.name)
		} else {
			require.NotErrorIs(t, err, outbox.ErrSchema, c.name)
		}
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	counts := set{columns: []string{"fanout_counted", "status", "row_count", "oldest"}, rows: [][]driver.Value{
		{"b", "pending", int64(3), int64(90_000_000)}, {"b", "failed", int64(1), int64(30_000_000)}, {"a", "published", int64(7), int64(1)},
	}}
	errs := set{columns: []string{"fanout_failed", "last_error"}, rows: [][]driver.Value{{"b", "{}"}}}
	store, _ := newFake(t, "outbox_messages", inTurn(
		reply{sets: []set{counts}}, reply{err: serverError(1222)}, // all of it is asked again
		reply{sets: []set{counts}}, reply{sets: []set{errs}}, reply{err: serverError(208)},
	))
	got, err := store.Counts(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.EqualValues(t, 7, got[0].Counts[outbox.StatusPublished])
	assert.Zero(t, got[0].OldestPending)
	assert.EqualValues(t, 3, got[1].Counts[outbox.StatusPending])
	assert.Equal(t, 90*time.Second, got[1].OldestPending)
	assert.Equal(t, "{}", got[1].LastError)
	_, err = store.Counts(t.Context())
	require.ErrorIs(t, err, outbox.ErrSchema)
}

func TestNew(t *testing.T) {
	t.Parallel()
	store, err := New(nil, "")
	require.NoError(t, err)
	assert.Equal(t, outbox.DefaultTable, store.table)
	assert.Equal(t, outbox.SQLServer, store.Dialect())
	assert.Equal(t, outbox.Lanes, store.Lanes())
	require.NoError(t, store.Close())
	for _, table := range []string{"a;b", "a.b.c", "[a]", strings.Repeat("x", 49)} {
		_, err := New(nil, table)
		require.Error(t, err, table)
	}
}
