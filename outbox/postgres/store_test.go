package postgres

import (
	"maps"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/store/storetest"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// waysToConnect are parameters of other ways in which a store connects.
var waysToConnect = map[string][][2]string{
	// Behind a pooler one switches prepared statements off. The simple protocol differs most from the usual one.
	"simple_protocol": {{"default_query_exec_mode", "simple_protocol"}},
	"exec":            {{"default_query_exec_mode", "exec"}},
	"cache_describe":  {{"default_query_exec_mode", "cache_describe"}},
	"serializable":    {{"default_transaction_isolation", "serializable"}, {"pool_max_conns", "1"}},
}

// TestConformanceOfExecModes: an eighth of the suite runs with one of the settings, another eighth and
// setting with each seed. The long run runs all of the suite with all of them.
func TestConformanceOfExecModes(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(waysToConnect))
	if !testenv.Long() {
		turn := testenv.Turn(t, len(names))
		names = names[turn : turn+1]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testenv.Postgres(t)
			own := dsn
			for _, parameter := range waysToConnect[name] {
				own = with(t, own, parameter[0], parameter[1])
			}
			conform(t, storetest.RunOnceMore, dsn, own)
		})
	}
}

func with(t *testing.T, dsn, parameter, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	query := u.Query()
	query.Set(parameter, value)
	u.RawQuery = query.Encode()
	return u.String()
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	for _, c := range []struct {
		name, dsn string
		opts      []Option
		want      int32
	}{
		{"default", dsn, nil, 4},
		{"configured", dsn, []Option{WithMaxConns(7)}, 7},
		{"the DSN has the last word", with(t, dsn, "pool_max_conns", "2"), []Option{WithMaxConns(7)}, 2},
	} {
		store, err := Open(t.Context(), c.dsn, "", c.opts...)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, store.pool.Config().MaxConns, c.name)
		assert.Equal(t, outbox.DefaultTable, store.table)
		assert.Equal(t, outbox.Postgres, store.Dialect())
		require.NoError(t, store.Close())
	}

	_, err := Open(t.Context(), dsn, "a;b")
	require.ErrorContains(t, err, "table name")
	_, err = Open(t.Context(), dsn, "", WithMaxConns(0))
	require.ErrorContains(t, err, "a pool of 0 connections")
	_, err = Open(t.Context(), "postgres://user:secret@localhost:not-a-port/x", "")
	require.ErrorContains(t, err, "cannot parse")
	assert.NotContains(t, err.Error(), "secret")
	_, err = Open(t.Context(), "postgres://user:secret@127.0.0.1:1/x?connect_timeout=5", "")
	require.ErrorContains(t, err, "cannot reach")
	assert.NotContains(t, err.Error(), "secret")
}

// The server may break off a claim, or a completion, in favour of another transaction. It is tried again.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "locked")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	// The first transaction that touches a row fails as if it were the victim.
	for _, statement := range []string{
		"CREATE SEQUENCE victims",
		`CREATE FUNCTION victim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('victims') % 2 = 1 THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$`,
		"CREATE TRIGGER victim BEFORE UPDATE ON locked FOR EACH ROW EXECUTE FUNCTION victim()",
		`INSERT INTO locked (message_id, target_broker, stream, type, payload, ordering_key) VALUES (gen_random_uuid(), 'b', 's', 't', '', 'k')`,
	} {
		_, err := store.pool.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	ready, err := store.Ready(t.Context(), "b", 0)
	require.NoError(t, err)
	claim := &driver.Claim{Broker: "b", Shard: ready.Shards[0], Limit: 1, Window: 1, Lease: time.Hour, Worker: "w"}
	result, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, result.Batch.Messages, 1)
	assert.Zero(t, result.Batch.Messages[0].Attempts)
	s := &driver.Completion{Lease: result.Batch.Lease, Other: []driver.Outcome{{ID: result.Batch.Messages[0].ID, Status: outbox.StatusPending}}}
	result, err = store.Exchange(t.Context(), s, claim)
	require.NoError(t, err)
	assert.Equal(t, &driver.Completed{}, result.Completed, "known from the try that wrote it")
	assert.Len(t, result.Batch.Messages, 1)

	_, err = store.pool.Exec(t.Context(), "ALTER SEQUENCE victims INCREMENT BY 2 RESTART WITH 1") // each transaction is a victim
	require.NoError(t, err)
	s.Lease = result.Batch.Lease
	result, err = store.Exchange(t.Context(), s, claim)
	require.ErrorContains(t, err, "deadlock detected")
	assert.Nil(t, result.Completed)
}

// "run fanout migrate" does not help an operator who has just done so.
func TestMissingSchema(t *testing.T) {
	t.Parallel()
	store := openStore(t, testenv.Postgres(t), "nowhere.outbox")
	_, err := store.Migrate(t.Context())
	require.ErrorContains(t, err, "create the schema first")
	require.NotErrorIs(t, err, outbox.ErrSchema)
}

// The error of a relay on a standby names the remedy.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, "outbox").Migrate(t.Context())
	require.NoError(t, err)
	store := openStore(t, with(t, dsn, "default_transaction_read_only", "on"), "outbox")
	_, purgeErr := store.Purge(t.Context(), admin.PurgeRequest{Status: outbox.StatusPublished, Limit: 1, Broker: "b"})
	_, claimErr := store.Exchange(t.Context(), nil, &driver.Claim{Broker: "b", Limit: 1, Window: 1, Lease: time.Hour})
	_, renewErr := store.Renew(t.Context(), driver.Lease{Broker: "b"})
	for _, err := range []error{purgeErr, claimErr, renewErr} {
		require.ErrorContains(t, err, "needs the primary")
	}
}

// A table without a schema must not have the name of a part of a statement, which would be read in
// its place.
func TestNewRefusesNamesOfParts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"win", "Known", "chosen", "back"} {
		_, err := New(nil, name)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "put its schema in front")
		_, err = New(nil, "app."+name)
		require.NoError(t, err)
	}
}
