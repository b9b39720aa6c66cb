package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/store/storetest"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, onEither, "")
}

// TestConformanceOnMySQL: the other tests run on MariaDB where both servers are given.
func TestConformanceOnMySQL(t *testing.T) {
	t.Parallel()
	if os.Getenv(testservers.MariaDBVariable) == "" && os.Getenv(testservers.MySQLVariable) != "" {
		t.Skip("TestConformance runs on MySQL")
	}
	conform(t, func(t *testing.T) string { t.Helper(); return testenv.MySQLAt(t, testservers.MySQLVariable) }, "")
}

func onEither(t *testing.T) string { t.Helper(); return testenv.MySQL(t) }

// TestConformanceOfSessions: a store gets its connections from the application, with whatever it
// has set on them.
func TestConformanceOfSessions(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t) // it is the whole suite once more
	isolation := "transaction_isolation"
	if strings.Contains(versionOf(t, testenv.MySQL(t)), "MariaDB") {
		isolation = "tx_isolation"
	}
	conform(t, onEither, "clientFoundRows=true&parseTime=true&loc=America%2FNew_York&time_zone=%27%2B05%3A00%27&"+isolation+"=%27SERIALIZABLE%27")
}

// conform runs the suite, each test in a database of its own. Stores have sessions of their own
// kind.
func conform(t *testing.T, create func(t *testing.T) (dsn string), parameters string) {
	t.Helper()
	isMariaDB := strings.Contains(versionOf(t, create(t)), "MariaDB")
	storetest.Run(t, func(t *testing.T) storetest.Bundle {
		dsn := create(t)
		db := openDB(t, with(dsn, "interpolateParams=true"))
		database := databaseOf(dsn)
		open := func(t *testing.T, table string) driver.Store {
			t.Helper()
			if parameters != "" {
				return newStore(t, openDB(t, with(dsn, parameters)), table)
			}
			store, err := Open(t.Context(), dsn, table, WithMaxConns(10))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			return store
		}
		const table = "outbox_messages"
		return storetest.Bundle{
			Store: open(t, table), DB: db, Table: table, Open: open, PrefersLarger: !isMariaDB,
			Decided: func(s driver.Store) claims.Store { return thin{s.(*Store)} },
			Tables:  []string{database[:min(len(database), 63)] + ".other", "Mixed_Case", "_1_", strings.Repeat("x", 48)},
			HoldShard: func(t *testing.T, broker string, shard int) func() {
				t.Helper()
				return holdShard(t, db, table, broker, shard)
			},
		}
	})
}

// versionOf is the server's, which is written down.
func versionOf(t *testing.T, dsn string) (version string) {
	t.Helper()
	require.NoError(t, openDB(t, dsn).QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version))
	t.Log(version)
	return version
}

func databaseOf(dsn string) string {
	_, name, _ := strings.Cut(dsn, ")/")
	name, _, _ = strings.Cut(name, "?")
	return name
}

func with(dsn, parameters string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&" + parameters
	}
	return dsn + "?" + parameters
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func newStore(t *testing.T, db *sql.DB, table string) *Store {
	t.Helper()
	store, err := New(db, table)
	require.NoError(t, err)
	return store
}

// holdShard takes the lock of a shard as a claim does, until release.
func holdShard(t *testing.T, db *sql.DB, table, broker string, shard int) (release func()) {
	t.Helper()
	s := newStore(t, db, table)
	_, err := s.exec(t.Context(), db, "make_shard", args{"broker": broker, "shard": shard})
	require.NoError(t, err)
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	held, err := s.list(t.Context(), tx, "lock", args{"broker": broker, "shard": shard})
	require.NoError(t, err)
	require.Len(t, held, 1, fmt.Sprint(broker, shard))
	return func() { require.NoError(t, tx.Rollback()) }
}

// oneRow writes a row, and returns the claim that takes it. The shard is known from then on.
func oneRow(t *testing.T, store *Store) *driver.Claim {
	t.Helper()
	row := outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T", OrderingKey: "key", Payload: []byte("{}")}
	inserter, err := outbox.NewInserter(outbox.MySQL, outbox.DefaultTable)
	require.NoError(t, err)
	require.NoError(t, inserter.Insert(t.Context(), store.db, []outbox.Row{row}))
	claim := &driver.Claim{Broker: "b", Shard: outbox.MySQL.Shard(&row), Limit: 1, Window: 1, Lease: time.Minute, Worker: "w"}
	_, err = thin{store}.Window(t.Context(), claim)
	require.NoError(t, err)
	return claim
}

// TestStoppedInATransaction: a process that is stopped, or cut off, while it has the lock of a shard
// holds up nobody for longer than the server keeps a session that says nothing. Who holds the lock of
// a name may say nothing.
func TestStoppedInATransaction(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	open := func(parameters string) *Store {
		store, err := Open(t.Context(), with(dsn, parameters), "")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	store, stopped := open(""), open("wait_timeout=1")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"20"}, column[string](t, store.db, "SELECT @@wait_timeout"))

	conn, err := stopped.db.Conn(t.Context())
	require.NoError(t, err)
	release, err := stopped.named(t.Context(), conn, "test", 0)
	require.NoError(t, err)
	var timeout int
	require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT @@wait_timeout").Scan(&timeout))
	assert.Equal(t, 2147483, timeout)
	release()
	require.ErrorIs(t, conn.Close(), sql.ErrConnDone, "the next one who gets it must not have its patience")

	claim := oneRow(t, store)
	tx, err := stopped.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	require.NoError(t, stopped.lock(t.Context(), tx, "lock", "b", claim.Shard, 0))
	exchanged, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.True(t, exchanged.Batch.Busy)
	require.Eventually(t, func() bool {
		exchanged, err := store.Exchange(t.Context(), nil, claim)
		return assert.NoError(t, err) && len(exchanged.Batch.Messages) == 1
	}, 30*time.Second, 50*time.Millisecond)
}

// TestHolder: sessions with old transactions are named, as those that may have a shard; a role without the
// right is told what it lacks.
func TestHolder(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	db := openDB(t, dsn)
	store := newStore(t, db, "")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	claim := &driver.Claim{Broker: "b", Limit: 1, Window: 1, Lease: time.Minute, Worker: "w"}
	_, err = thin{store}.Window(t.Context(), claim)
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	require.NoError(t, store.lock(t.Context(), tx, "lock", "b", 0, 0))
	store.heldLong = 0
	require.EventuallyWithT(t, func(t *assert.CollectT) { // the server has its list from a moment ago
		holder, err := store.Holder(context.Background(), "b", 0)
		assert.NoError(t, err)
		assert.Regexp(t, `^perhaps thread \d+, \S+@\S+, in a transaction since 2\d\d\d-`, holder.Session)
		assert.False(t, holder.Ended)
	}, time.Minute, 250*time.Millisecond) // the server answers as before where it was asked a moment ago

	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.User, config.Passwd = "holder_"+strings.ToLower(rand.Text()[:12]), rand.Text()
	for _, text := range []string{
		"CREATE USER " + config.User + " IDENTIFIED BY '" + config.Passwd + "'", "GRANT INSERT ON " + config.DBName + ".* TO " + config.User,
	} {
		_, err = db.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _, _ = openDB(t, dsn).Exec("DROP USER " + config.User) }) //nolint:noctx // the test's context has ended
	holder, err := newStore(t, openDB(t, config.FormatDSN()), "").Holder(t.Context(), "b", 0)
	require.NoError(t, err)
	assert.Contains(t, holder.Session, "no right PROCESS")
}

// TestBytesThatAreNoUTF8: MySQL cannot list its transactions while a session runs a statement with such bytes, as a
// writer of binary payloads does. That hides nothing from the relay for longer, and its own statements have none.
func TestBytesThatAreNoUTF8(t *testing.T) {
	t.Parallel()
	db := openDB(t, testenv.MySQL(t))
	store := newStore(t, db, "")
	store.heldLong = 0
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	hold, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer hold.Close()
	_, err = hold.ExecContext(t.Context(), "SELECT GET_LOCK(CONCAT('bytes ', DATABASE()), 60)")
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT slot FROM outbox_messages_key_slots FOR UPDATE")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := tx.ExecContext(t.Context(), "SELECT GET_LOCK(CONCAT('bytes ', DATABASE()), 60), '\xc3('")
		ended <- errors.Join(err, tx.Rollback())
	}()
	isMySQL := !strings.Contains(versionOf(t, testenv.MySQL(t)), "MariaDB")
	require.EventuallyWithT(t, func(t *assert.CollectT) { // once it runs
		holder, err := store.Holder(context.Background(), "b", 0)
		assert.NoError(t, err)
		if isMySQL {
			assert.Contains(t, holder.Session, "bytes that are no UTF-8")
		} else {
			assert.Contains(t, holder.Session, "perhaps thread")
		}
	}, time.Minute, 20*time.Millisecond)
	diagnosis, err := store.Diagnose(t.Context())
	require.NoError(t, err)
	assert.NoError(t, diagnosis.Err())
	dirty, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: true})
	require.NoError(t, err)
	store.water.sight("", 1, time.Time{})
	require.NoError(t, store.seeWriters(t.Context(), dirty, ""))
	assert.False(t, store.water.refuses(), "it asks again")
	require.NoError(t, dirty.Rollback())
	_, err = hold.ExecContext(t.Context(), "DO RELEASE_LOCK(CONCAT('bytes ', DATABASE()))")
	require.NoError(t, err)
	require.NoError(t, <-ended)

	for name, statement := range store.statements {
		for i, parameter := range statement.parameters {
			if before := strings.SplitAfter(statement.text, "?")[i]; parameter == "token" {
				assert.True(t, strings.HasSuffix(before, "UNHEX(?"), "%s takes bytes", name)
			}
		}
	}
}

// TestClientThatDoesNotRead: nor does one hold up others that does not read what it has asked for while it
// has the lock of a shard.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	store, err := Open(t.Context(), dsn, "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"20 20"}, column[string](t, store.db, "SELECT CONCAT(@@net_read_timeout, ' ', @@net_write_timeout)"))
	slow, err := Open(t.Context(), with(dsn, "net_write_timeout=1"), "")
	require.NoError(t, err)
	claim := oneRow(t, store)
	tx, err := slow.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, slow.lock(t.Context(), tx, "lock", "b", claim.Shard, 0))
	rows, err := tx.QueryContext(t.Context(), "SELECT REPEAT('x', 1000000) FROM outbox_messages_key_slots")
	require.NoError(t, err)
	t.Cleanup(func() { _, _, _, _ = rows.Close(), rows.Err(), tx.Rollback(), slow.Close() })
	busy := func() bool {
		exchanged, err := store.Exchange(t.Context(), nil, claim)
		require.NoError(t, err)
		return exchanged.Batch.Busy
	}
	require.True(t, busy())
	require.Eventually(t, func() bool { return !busy() }, time.Minute, 50*time.Millisecond)
}

// TestStatementsGiveWay: whatever may wait for a row while the transaction has locked others says that
// it does not wait. What is left out locks first, or rows that nothing else locks before them.
func TestStatementsGiveWay(t *testing.T) {
	t.Parallel()
	store := newStore(t, openDB(t, testenv.MySQL(t)), "outbox_messages")
	texts, _ := store.Texts()
	for name, statement := range store.statements {
		texts[name] = statement.text
	}
	first := []string{
		"lock", "lock_shards", "turn", "make_shard", "record",
		"audit_begin", "audit_end", "pause", "resume", "heartbeat", "leave", "forget_instances",
	}
	givesWay := 0
	for name, text := range texts {
		bare, gives := strings.CutPrefix(text, sqladmin.GivingWay+" ")
		writes := strings.HasPrefix(bare, "UPDATE") || strings.HasPrefix(bare, "DELETE") || strings.HasPrefix(bare, "INSERT")
		waits := writes || strings.Contains(bare, "FOR UPDATE") && !strings.Contains(bare, "SKIP LOCKED")
		assert.Equal(t, waits && !slices.Contains(first, name), gives, name)
		if gives {
			givesWay++
		}
	}
	assert.Greater(t, givesWay, 20)
}

// However few connections a pool has, migrations of one process do not wait for each other's.
func TestMigrationsShareAPool(t *testing.T) {
	t.Parallel()
	db := openDB(t, testenv.MySQL(t))
	db.SetMaxOpenConns(1)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			_, err := newStore(t, db, "").Migrate(t.Context())
			assert.NoError(t, err)
		})
	}
	group.Wait()
}
