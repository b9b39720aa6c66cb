package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// broker is the one that most rows are for.
const broker = "broker"

// lease is how long claims last in the suite: much longer than any test.
const lease = time.Hour

// table is the table under test, with the verbs of an operator.
type table struct {
	*testing.T
	Bundle
	sql   dialect
	shard int // the shard of keys and of everything that a test claims
}

func newTable(t *testing.T, bundle Bundle) *table {
	t.Helper()
	if s, ok := bundle.Store.(interface {
		Replace(name, before, after string)
	}); ok {
		s.Replace("settings_browse", "'statement_timeout', '5s'", "'statement_timeout', '5min'")
	}
	return &table{T: t, Bundle: bundle, sql: dialects[bundle.Store.Dialect()]}
}

// Context is the test's. What the suite asks with it may take as long as a busy machine needs: how long
// a person waits is the subject of the stores' own tests.
func (t *table) Context() context.Context { return sqladmin.Patient(t.T.Context()) }

// exec runs a statement in which ? stands for a parameter, {t} for the table and {f} for a
// name that contains the table's.
func (t *table) exec(text string, args ...any) {
	t.Helper()
	_, err := t.DB.ExecContext(t.Context(), t.render(text), args...)
	require.NoError(t, err, text)
}

// try is exec for statements that may fail.
func (t *table) try(text string, args ...any) error {
	_, err := t.DB.ExecContext(t.Context(), t.render(text), args...)
	return err
}

func (t *table) render(text string) string {
	text = strings.NewReplacer("{t}", t.Table, "{f}", strings.ReplaceAll(t.Table, ".", "_")).Replace(text)
	parts := strings.Split(text, "?")
	var b strings.Builder
	for n, part := range parts {
		if n > 0 {
			b.WriteString(t.sql.placeholder(n))
		}
		b.WriteString(part)
	}
	return b.String()
}

// number reads one number.
func (t *table) number(text string, args ...any) int64 {
	t.Helper()
	var n int64
	require.NoError(t, t.DB.QueryRowContext(t.Context(), t.render(text), args...).Scan(&n), text)
	return n
}

// ids reads row ids.
func (t *table) ids(text string, args ...any) []int64 {
	t.Helper()
	rows, err := t.DB.QueryContext(t.Context(), t.render(text), args...)
	require.NoError(t, err, text)
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}

// newRow is a row with nothing special about it.
func newRow(key string) outbox.Row {
	return outbox.Row{
		MessageID: uuid.New(), TargetBroker: broker, Stream: "ordering::order", Type: "Ordering.OrderPlaced.v1",
		OrderingKey: key, Payload: []byte(`{}`),
	}
}

// insert writes rows and returns their ids.
func (t *table) insert(rows ...outbox.Row) []int64 {
	t.Helper()
	last := t.number("SELECT coalesce(max(id), 0) FROM {t}") // no other transaction is writing
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	require.NoError(t, inserter.Insert(t.Context(), t.DB, rows))
	return t.ids("SELECT id FROM {t} WHERE id > ? ORDER BY id", last)
}

// add writes one row per key and returns their ids.
func (t *table) add(keys ...string) []int64 {
	t.Helper()
	rows := make([]outbox.Row, len(keys))
	for i, key := range keys {
		rows[i] = newRow(key)
	}
	return t.insert(rows...)
}

// keys returns n ordering keys of one shard, and makes that shard the one of the test.
func (t *table) keys(n int) []string {
	t.Helper()
	return t.keysIn(0, n)
}

func (t *table) keysIn(shard, n int) []string {
	t.Helper()
	names := make([]string, 0, n)
	t.shard = shard
	for i := 0; len(names) < n; i++ {
		if row := newRow(fmt.Sprintf("key-%d", i)); t.here(&row) {
			names = append(names, row.OrderingKey)
		}
	}
	return names
}

// here reports whether a row belongs into the shard of the test. The tests of shards compare this
// computation with the database's.
func (t *table) here(row *outbox.Row) bool { return t.Store.Dialect().Shard(row) == t.shard }

// addLoose writes n rows without a key into the shard of the test.
func (t *table) addLoose(n int) []int64 {
	t.Helper()
	rows := make([]outbox.Row, 0, n)
	for len(rows) < n {
		if row := newRow(""); t.here(&row) {
			rows = append(rows, row)
		}
	}
	return t.insert(rows...)
}

func (t *table) shardOf(id int64) int { return int(t.number("SELECT shard FROM {t} WHERE id = ?", id)) }

// age makes a time in a row come to pass: it is moved into the past by the given duration.
func (t *table) age(id int64, column string, by time.Duration) {
	t.Helper()
	t.exec("UPDATE {t} SET "+column+" = "+t.sql.minus(column, by)+" WHERE id = ?", id)
}

// expire ends the leases and backoffs of rows.
func (t *table) expire(ids ...int64) {
	t.Helper()
	for _, id := range ids {
		t.age(id, "locked_until", 2*lease)
	}
}

// state is a row as an operator sees it.
type state struct {
	Status            string
	Attempts, Crashes int
	Token, Worker     string
	LockedFor         time.Duration // from now; 0 = NULL
	PublishedAgo      time.Duration // 0 = NULL, see ago
	FinishedAgo       time.Duration // 0 = NULL
	LastError         string
	BrokerMessageID   string
}

func (t *table) state(id int64) state {
	t.Helper()
	var (
		s                                 state
		locked, publishedAgo, finishedAgo sql.NullInt64
	)
	err := t.DB.QueryRowContext(t.Context(), t.render("SELECT status, attempts, crashes, coalesce("+t.sql.text("lock_token")+
		", ''), coalesce(locked_by, ''), "+t.sql.fromNow("locked_until")+", "+t.sql.fromNow("published_at")+", "+
		t.sql.fromNow("finished_at")+", coalesce(last_error, ''), coalesce(broker_message_id, '') FROM {t} WHERE id = ?"), id).
		Scan(&s.Status, &s.Attempts, &s.Crashes, &s.Token, &s.Worker, &locked, &publishedAgo, &finishedAgo, &s.LastError, &s.BrokerMessageID)
	require.NoError(t, err)
	s.LockedFor, s.PublishedAgo, s.FinishedAgo = micros(locked.Int64), ago(publishedAgo), ago(finishedAgo)
	return s
}

// ago is how long ago a point in time was, 0 for NULL. The present instant is 1 µs ago: SQLite's
// clock counts milliseconds, and a write and a look may share one.
func ago(fromNow sql.NullInt64) time.Duration {
	if !fromNow.Valid {
		return 0
	}
	return max(-micros(fromNow.Int64), time.Microsecond)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// count counts the rows of the test's broker by status.
func (t *table) count(status outbox.Status) int {
	t.Helper()
	return int(t.number("SELECT count(*) FROM {t} WHERE target_broker = ? AND status = ?", broker, string(status)))
}

// another opens a second store on the same table, as another process would.
func (t *table) another() driver.Store {
	t.Helper()
	return t.Open(t.T, t.Table)
}

// claim claims from the shard of the test; change adapts the request.
func (t *table) claim(change ...func(*driver.Claim)) driver.Batch {
	t.Helper()
	return t.claimBy(t.Store, change...)
}

func (t *table) claimBy(store driver.Delivery, change ...func(*driver.Claim)) driver.Batch {
	t.Helper()
	result, err := store.Exchange(t.Context(), nil, t.request(change...))
	require.NoError(t, err)
	require.Nil(t, result.Completed)
	return result.Batch
}

func (t *table) request(change ...func(*driver.Claim)) *driver.Claim {
	claim := &driver.Claim{Broker: broker, Shard: t.shard, Limit: 100, Window: 100, Lease: lease, Worker: "worker"}
	for _, f := range change {
		f(claim)
	}
	claim.Window = max(claim.Window, claim.Limit)
	return claim
}

func limit(n int) func(*driver.Claim)  { return func(c *driver.Claim) { c.Limit = n } }
func window(n int) func(*driver.Claim) { return func(c *driver.Claim) { c.Window = n } }
func unordered(c *driver.Claim)        { c.Unordered = true }

// complete completes without a claim.
func (t *table) complete(s *driver.Completion) driver.Completed {
	t.Helper()
	return t.completeBy(t.Store, s)
}

func (t *table) completeBy(store driver.Delivery, s *driver.Completion) driver.Completed {
	t.Helper()
	result, err := store.Exchange(t.Context(), s, nil)
	require.NoError(t, err)
	require.NotNil(t, result.Completed)
	return *result.Completed
}

// publish completes a whole batch as published.
func (t *table) publish(b driver.Batch) {
	t.Helper()
	require.Zero(t, t.complete(published(b)).Lost)
}

func published(b driver.Batch) *driver.Completion {
	s := &driver.Completion{Lease: b.Lease}
	for i := range b.Messages {
		s.Published = append(s.Published, driver.Delivered{ID: b.Messages[i].ID})
	}
	return s
}

// outcome completes all rows of a batch alike.
func outcome(b driver.Batch, o driver.Outcome) *driver.Completion {
	s := &driver.Completion{Lease: b.Lease}
	for i := range b.Messages {
		o.ID = b.Messages[i].ID
		s.Other = append(s.Other, o)
	}
	return s
}

// taken lists the ids of a batch.
func taken(b driver.Batch) []int64 {
	ids := make([]int64, len(b.Messages))
	for i := range b.Messages {
		ids[i] = b.Messages[i].ID
	}
	return ids
}

// background is a context that outlives the test's own, for goroutines that are waited for.
func (t *table) background() context.Context { return context.WithoutCancel(t.Context()) }
