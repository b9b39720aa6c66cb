package postgres

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// silence is a table, and a session beside its store's that takes the lock of shard 0 of broker b.
type silence struct {
	*testing.T

	store *Store
	other *pgconn.PgConn
}

func newSilence(t *testing.T) *silence {
	t.Helper()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "silent")
	store.heldLong, store.silence = 0, time.Hour
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	config.RuntimeParams["application_name"] = "other"
	other, err := pgconn.ConnectConfig(t.Context(), &config.Config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Conn().Close() })
	return &silence{t, store, other}
}

func (s *silence) exec(text string) {
	s.Helper()
	_, err := s.other.Exec(s.Context(), text).ReadAll()
	require.NoError(s, err)
}

// half sends the beginning of a claim's transaction, in the middle of a pipeline, with further
// statements behind the lock, and waits until the lock is granted.
func (s *silence) half(lock string, further ...string) {
	s.Helper()
	pipeline := s.other.StartPipeline(s.Context())
	pipeline.SendQueryParams(begin, nil, nil, nil, nil)
	pipeline.SendQueryParams(strings.ReplaceAll(lock, "$1", fmt.Sprint(shardLock("b", 0))), nil, nil, nil, nil)
	pipeline.SendFlushRequest()
	require.NoError(s, pipeline.Flush())
	for range 2 {
		result, err := pipeline.GetResults()
		require.NoError(s, err)
		_, err = result.(*pgconn.ResultReader).Close()
		require.NoError(s, err)
	}
	for _, text := range further {
		pipeline.SendQueryParams(text, nil, nil, nil, nil)
		pipeline.SendFlushRequest()
		require.NoError(s, pipeline.Flush())
	}
}

func (s *silence) busy() bool {
	s.Helper()
	exchanged, err := s.store.Exchange(s.Context(), nil, &driver.Claim{Broker: "b", Limit: 1, Window: 1, Lease: time.Minute, Worker: "w"})
	require.NoError(s, err)
	return exchanged.Batch.Busy
}

func (s *silence) holder() driver.Holder {
	s.Helper()
	holder, err := s.store.Holder(s.Context(), "b", 0)
	require.NoError(s, err)
	return holder
}

// Whoever has a shard for long is named, whatever kind of session it is; one that has fallen silent in
// the middle of a transaction, or does not read what it has asked for, is ended, and no other.
func TestHolder(t *testing.T) {
	t.Parallel()
	byHand := fmt.Sprintf("SELECT pg_advisory_lock('silent'::regclass::oid::int, %d)", shardLock("b", 0))
	for name, c := range map[string]struct {
		hold  func(*silence)
		state string
		ended bool
	}{
		"in the middle of a pipeline": {func(s *silence) { s.half(s.store.sql.tryLock) }, "silent in the middle of a transaction", true},
		"does not read": {func(s *silence) {
			s.half(s.store.sql.tryLock, "SELECT repeat('x', 100000) FROM generate_series(1, 1000)")
		}, "sending to a client that does not read", true},
		"between two statements":            {func(s *silence) { s.exec("BEGIN"); s.exec(byHand) }, "in a transaction and idle", false},
		"by hand, outside of a transaction": {func(s *silence) { s.exec(byHand) }, "idle", false},
		"at work":                           {func(s *silence) { s.half(s.store.sql.tryLock, "SELECT pg_sleep(60)") }, "active", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSilence(t)
			require.False(t, s.busy())
			assert.Equal(t, driver.Holder{}, s.holder(), "no session")
			c.hold(s)
			require.True(t, s.busy())
			told := fmt.Sprintf(`^process %d, application other, role \S+, %s, since 2\d\d\d-`, s.other.PID(), c.state)
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				holder, err := s.store.Holder(s.Context(), "b", 0)
				assert.NoError(t, err)
				assert.Regexp(t, told, holder.Session)
				assert.False(t, holder.Ended, "for it has been silent for less than an hour")
			}, time.Minute, 10*time.Millisecond)
			s.store.heldLong = time.Hour
			assert.Equal(t, driver.Holder{}, s.holder(), "a claim may take as long")
			s.store.heldLong, s.store.silence = 0, 0
			holder := s.holder()
			assert.Regexp(t, told, holder.Session)
			assert.Equal(t, c.ended, holder.Ended)
			if c.ended {
				require.Eventually(t, func() bool { return !s.busy() }, time.Minute, 10*time.Millisecond)
				assert.Equal(t, driver.Holder{}, s.holder())
			} else {
				assert.True(t, s.busy())
			}
		})
	}
}

// A session of another role is named as far as the server tells, and not ended.
func TestHolderOfAnotherRole(t *testing.T) {
	t.Parallel()
	s := newSilence(t)
	s.half(s.store.sql.tryLock)
	s.store.silence = 0
	role := "holder_" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))
	conn, err := s.store.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	exec(t, conn.Conn(), "CREATE ROLE "+role)
	t.Cleanup(func() {
		_, err := s.store.pool.Exec(context.WithoutCancel(t.Context()), "DROP ROLE "+role)
		assert.NoError(t, err)
	})
	var (
		session string
		ended   bool
	)
	exec(t, conn.Conn(), "SET ROLE "+role)
	err = conn.QueryRow(t.Context(), s.store.sql.holder, shardLock("b", 0), 0, 0).Scan(&session, &ended)
	exec(t, conn.Conn(), "RESET ROLE")
	require.NoError(t, err)
	assert.Regexp(t, fmt.Sprintf(`^process %d, application other, role \S+, of another role$`, s.other.PID()), session)
	assert.False(t, ended)
}

// The settings of a transaction that has a lock end with it; and PostgreSQL 17 ends the transaction
// whatever its client does.
func TestSilenceIsBounded(t *testing.T) {
	t.Parallel()
	s := newSilence(t)
	names := []string{"idle_in_transaction_session_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout", "transaction_timeout"}
	want := []string{"10s", "5", "3", "3", "15000", "30s"}
	conn, err := s.store.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	settings := func() (values []string) {
		for _, name := range names {
			var value string
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT coalesce(current_setting($1, true), '')", name).Scan(&value))
			values = append(values, value)
		}
		return values
	}
	before := settings()
	var version int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	if version < 170000 {
		want[5] = ""
	}
	for name, text := range map[string]string{
		"try_lock": s.store.sql.tryLock, "lock": s.store.sql.lock, "settings": s.store.sql.settings, "take_settings": s.store.sql.takeSettings,
		"settings_operate": s.store.Text("settings_operate"),
	} {
		exec(t, conn.Conn(), begin)
		var given []any
		if strings.Contains(text, "$1") {
			given = append(given, shardLock("b", 0))
		}
		rows, err := conn.Query(t.Context(), text, given...)
		require.NoError(t, err)
		rows.Close()
		require.NoError(t, rows.Err())
		values := settings()
		if before[1] == "0" { // of a Unix socket there is nothing to set
			want[1], want[2], want[3], want[4] = "0", "0", "0", "0"
		}
		assert.Equal(t, want, values, name)
		exec(t, conn.Conn(), "COMMIT")
		assert.Equal(t, before, settings(), name)
	}
}

// A client that reads nothing is given up by the server itself, and its lock with it.
func TestServerGivesUpAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	s := newSilence(t)
	_, overTCP := s.other.Conn().RemoteAddr().(*net.TCPAddr)
	var linux bool
	require.NoError(t, s.store.pool.QueryRow(t.Context(), "SELECT version() LIKE '%linux%'").Scan(&linux))
	if !overTCP || !linux {
		t.Skip("the server has no tcp_user_timeout")
	}
	require.Contains(t, s.store.sql.tryLock, "'15s'")
	s.half(strings.ReplaceAll(s.store.sql.tryLock, "'15s'", "'500ms'"), "SELECT repeat('x', 100000) FROM generate_series(1, 1000)")
	require.True(t, s.busy())
	require.Eventually(t, func() bool { return !s.busy() }, time.Minute, 50*time.Millisecond)
}

// What PostgreSQL 17 ends by itself: a transaction whose client is silent, though its network is well.
func TestServerEndsASilentTransaction(t *testing.T) {
	t.Parallel()
	s := newSilence(t)
	var version int
	require.NoError(t, s.store.pool.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	if version < 170000 {
		t.Skip("the server has no transaction_timeout")
	}
	require.Contains(t, s.store.sql.tryLock, "'30s'")
	s.half(strings.ReplaceAll(s.store.sql.tryLock, "'30s'", "'500ms'"))
	require.True(t, s.busy())
	require.Eventually(t, func() bool { return !s.busy() }, time.Minute, 50*time.Millisecond)
}
