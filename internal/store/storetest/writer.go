package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

var writerTests = []test{
	{name: "Rows", run: testWriterRows},
	{name: "Order", run: testWriterOrder},
	{name: "Calls", run: testWriterCalls},
	{name: "WrittenAlready", run: testWriterTwice},
	{name: "Refused", run: testWriterRefusals},
	{name: "KeyLocks", run: testWriterKeyLocks},
	{name: "Committed", run: testCommitted, concurrent: true},
}

// WriterTx is a transaction of an application that does not use GORM.
type WriterTx interface {
	// Insert is that of an outbox.Writer.
	Insert(ctx context.Context, w *outbox.Writer, events ...envelope.Event) (*outbox.Written, error)
	// Exec runs a statement of the application's own.
	Exec(ctx context.Context, text string) error
	Commit() error
	Rollback() error
}

// RunWriter runs the tests of outbox.Writer in transactions of another kind than those of database/sql.
func RunWriter(t *testing.T, newBundle func(t *testing.T) Bundle) {
	t.Helper()
	run(t, 1, []group{{"Writer", writerTests}}, newBundle)
}

// sqlTx is a transaction of database/sql.
type sqlTx struct{ *sql.Tx }

// Insert implements WriterTx.
func (tx sqlTx) Insert(ctx context.Context, w *outbox.Writer, events ...envelope.Event) (*outbox.Written, error) {
	return w.Insert(ctx, tx.Tx, events...)
}

// Exec implements WriterTx.
func (tx sqlTx) Exec(ctx context.Context, text string) error {
	_, err := tx.ExecContext(ctx, text)
	return err
}

type (
	written struct{ N int }
	inside  struct{ N int }
	odd     struct{ C chan int }
	strange struct{ N int }
	filled  struct {
		OrderID int `fanout:"id"`
	}
)

// writer makes one with two external brokers; change adapts its routing.
func (t *table) writer(change ...func(*outbox.Routing)) *outbox.Writer {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[written](events, envelope.Published())
	envelope.Register[inside](events)
	envelope.Register[odd](events)
	envelope.Register[filled](events)
	routing := outbox.Routing{
		Table: t.Table, InternalBroker: broker,
		External: []outbox.Route{{Broker: "partner"}, {Broker: "picky", Types: []string{"Billing.*"}}, {Broker: "events", Format: envelope.FormatCloudEvents}},
	}
	for _, f := range change {
		f(&routing)
	}
	w, err := outbox.NewWriter(outbox.WriterConfig{Dialect: t.Store.Dialect(), Events: events, Routing: routing, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return w
}

func (t *table) beginWriter(ctx context.Context) WriterTx {
	t.Helper()
	var tx WriterTx
	if t.BeginWriter != nil {
		tx = t.BeginWriter(ctx, t.T)
	} else {
		begun, err := t.DB.BeginTx(ctx, nil)
		require.NoError(t, err)
		tx = sqlTx{begun}
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// commitEvents writes events in a transaction, and commits it.
func (t *table) commitEvents(w *outbox.Writer, events ...envelope.Event) {
	t.Helper()
	tx := t.beginWriter(t.background())
	_, err := tx.Insert(t.Context(), w, events...)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

// facts lists what the rows of the table say, in their order.
func (t *table) facts(columns string) []string {
	t.Helper()
	rows, err := t.DB.QueryContext(t.Context(), t.render("SELECT "+columns+" FROM {t} ORDER BY id"))
	require.NoError(t, err)
	defer rows.Close()
	names, err := rows.Columns()
	require.NoError(t, err)
	var facts []string
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		texts := make([]string, len(names))
		for i := range values {
			texts[i] = values[i].String
		}
		facts = append(facts, strings.Join(texts, " "))
	}
	require.NoError(t, rows.Err())
	return facts
}

func order(id string) envelope.Source { return envelope.Source{Aggregate: "Order", ID: id, Version: 7} }

// What a writer stores is what the routing, the event's options and the context say.
func testWriterRows(t *table) {
	w := t.writer()
	ctx := envelope.WithTenantID(envelope.WithCorrelationID(t.Context(), "c-1"), "acme")
	ctx = envelope.WithTrace(ctx, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	tx := t.beginWriter(t.background())
	at := time.Now().AddDate(1, 0, 0).UTC().Truncate(time.Second)
	events := []envelope.Event{
		envelope.NewEvent(written{1}).From(order("42")),
		envelope.NewEvent(inside{2}).From(order("42")),
		envelope.NewEvent(inside{3}),
		envelope.NewEvent(written{4}, envelope.To("events"), envelope.Priority(envelope.PriorityLow)).From(order("42")),
		envelope.NewEvent(inside{5}, envelope.Unordered(), envelope.TTL(time.Hour)).From(order("43")),
		envelope.NewEvent(inside{6}, envelope.Key(func(inside) string { return "own" }), envelope.NotBefore(func(inside) time.Time { return at })),
		envelope.NewEvent(filled{}).From(envelope.Source{Aggregate: "Order", ID: "44"}),
	}
	_, err := tx.Insert(ctx, w, events...)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	low := strconv.Itoa(int(envelope.PriorityLow))
	assert.Equal(t, []string{
		broker + " ordering::order Ordering.written.v1 ordering::order-42 0 application/json Order 42 c-1 acme",
		"partner ordering::order Ordering.written.v1 ordering::order-42 0 application/json Order 42 c-1 acme",
		"events ordering::order Ordering.written.v1 ordering::order-42 0 application/cloudevents+json Order 42 c-1 acme",
		broker + " ordering::order Ordering.inside.v1 ordering::order-42 0 application/json Order 42 c-1 acme",
		broker + " ordering Ordering.inside.v1  0 application/json   c-1 acme",
		broker + " ordering::order Ordering.written.v1 ordering::order-42 " + low + " application/json Order 42 c-1 acme",
		"events ordering::order Ordering.written.v1 ordering::order-42 " + low + " application/cloudevents+json Order 42 c-1 acme",
		broker + " ordering::order Ordering.inside.v1  0 application/json Order 43 c-1 acme",
		broker + " ordering Ordering.inside.v1 own 0 application/json   c-1 acme",
		broker + " ordering::order Ordering.filled.v1 ordering::order-44 0 application/json Order 44 c-1 acme",
	}, t.facts("target_broker, stream, type, ordering_key, priority, content_type, aggregate_type, aggregate_id, correlation_id, tenant_id"))
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t} WHERE expires_at IS NOT NULL AND aggregate_id = '43'"))
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t} WHERE available_at = ? AND ordering_key = 'own'", t.sql.time(at)))
	assert.Equal(t, int64(10), t.number("SELECT count(*) FROM {t} WHERE headers LIKE '%0af7651916cd43dd8448eb211c80319c%'"))

	var sequences []string
	for _, payload := range t.payloads(broker) {
		message, err := envelope.DecodeInternal(payload)
		require.NoError(t, err)
		require.NoError(t, message.VerifyChecksum())
		sequences = append(sequences, message.Metadata.Domain.SequenceID)
	}
	assert.Equal(t, []string{"7.1", "7.2", "", "7.3", "7.1", "", ""}, sequences, "counted for each aggregate")
	assert.Contains(t, string(t.payloads(broker)[6]), `{"OrderID":44}`, "the key that the database has made")
	assert.NotContains(t, string(t.payloads("partner")[0]), "acme", "stripped")
}

func (t *table) payloads(broker string) (payloads [][]byte) {
	t.Helper()
	rows, err := t.DB.QueryContext(t.Context(), t.render("SELECT payload FROM {t} WHERE target_broker = ? ORDER BY id"), broker)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var payload []byte
		require.NoError(t, rows.Scan(&payload))
		payloads = append(payloads, payload)
	}
	require.NoError(t, rows.Err())
	return payloads
}

// Rows have the order of the events, over more than one statement, whether the keys are locked or not.
func testWriterOrder(t *table) {
	for _, serialize := range []bool{false, true} {
		w := t.writer(func(r *outbox.Routing) { r.SerializeKeys = serialize })
		events := make([]envelope.Event, 1100)
		want := make([]string, len(events))
		for i := range events {
			events[i] = envelope.NewEvent(inside{i}).From(order(strconv.Itoa(i % 7)))
			want[i] = events[i].ID.String()
		}
		t.commitEvents(w, events...)
		require.Equal(t, want, t.facts(t.sql.text("message_id")))
		t.exec("DELETE FROM {t}")
	}
	t.commitEvents(t.writer()) // nothing
	require.Empty(t, t.facts("id"))
}

// A further call in a transaction counts on: no event has the sequence of an earlier one, whatever becomes
// of the calls in between.
func testWriterCalls(t *table) {
	w := t.writer()
	of := func(id string, n int) envelope.Event { return envelope.NewEvent(inside{n}).From(order(id)) }
	insert := func(tx WriterTx, events ...envelope.Event) {
		_, err := tx.Insert(t.Context(), w, events...)
		require.NoError(t, err)
	}
	var want []string
	for range 2 { // each transaction begins anew
		tx := t.beginWriter(t.background())
		insert(tx, of("1", 1), of("1", 2))
		_, err := tx.Insert(t.Context(), w, of("1", 0), envelope.NewEvent(strange{0}))
		require.Error(t, err)
		insert(tx, of("1", 3), of("2", 4), of("1", 5))
		insert(tx, envelope.NewEvent(inside{6}), of("2", 7))
		insert(tx)
		numbered := order("2")
		numbered.Sequence = 90
		insert(tx, envelope.NewEvent(inside{8}).From(numbered), of("1", 9))
		insert(tx, of("1", 10))
		require.NoError(t, tx.Commit())
		want = append(want, "1 7.1", "1 7.2", "1 7.3", "2 7.3", "1 7.4", " ", "2 7.5", "2 7.90", "1 7.6", "1 7.91")
	}
	assert.Equal(t, want, t.sequences())
	t.exec("DELETE FROM {t}")
	if t.OneWriter {
		return
	}
	one, other := t.beginWriter(t.background()), t.beginWriter(t.background())
	for _, n := range []int{1, 2} {
		insert(one, of("1", n))
		insert(other, of("2", n))
	}
	require.NoError(t, one.Commit())
	require.NoError(t, other.Commit())
	assert.Equal(t, []string{"1 7.1", "2 7.1", "1 7.2", "2 7.2"}, t.sequences())
}

// sequences lists the aggregate and the sequence of each message, of events that no external broker gets.
func (t *table) sequences() (sequences []string) {
	t.Helper()
	ids := t.facts("aggregate_id")
	for i, payload := range t.payloads(broker) {
		message, err := envelope.DecodeInternal(payload)
		require.NoError(t, err)
		sequences = append(sequences, ids[i]+" "+message.Metadata.Domain.SequenceID)
	}
	return sequences
}

// Should a transaction be repeated that has committed, whose answer was lost, the second one fails as
// a whole.
func testWriterTwice(t *table) {
	w := t.writer()
	event := envelope.NewEvent(written{1}).From(order("1"))
	t.commitEvents(w, event)
	tx := t.beginWriter(t.background())
	_, err := tx.Insert(t.Context(), w, envelope.NewEvent(inside{2}), event)
	require.ErrorContains(t, err, "insert 4 rows")
	require.NoError(t, tx.Rollback())
	tx = t.beginWriter(t.background())
	_, err = tx.Insert(t.Context(), w, envelope.NewEvent(inside{3}), envelope.NewEvent(inside{3}))
	require.NoError(t, err, "two events that say the same")
	require.NoError(t, tx.Rollback())
	assert.Len(t, t.facts("id"), 3)
}

// What cannot be written is an error that names the event. Applications roll back then, as some rows may be
// there; of so few events none is, as all are sealed before the first statement, and the test goes on.
func testWriterRefusals(t *table) {
	w := t.writer(func(r *outbox.Routing) { r.MaxPayloadBytes = 2000 })
	tx := t.beginWriter(t.background())
	var (
		unregistered *envelope.UnregisteredError
		unencodable  *envelope.EncodeError
		unknown      *outbox.UnknownBrokerError
		oversize     *outbox.OversizeError
		option       *envelope.OptionError
	)
	large := envelope.Extension("large", strings.Repeat("x", 3000))
	for name, c := range map[string]struct {
		event envelope.Event
		as    any
		says  string
	}{
		"unregistered": {envelope.NewEvent(strange{1}), &unregistered, "write storetest.strange: "},
		"unencodable":  {envelope.NewEvent(odd{}).From(order("1")), &unencodable, "write storetest.odd raised by Order 1: "},
		"broker":       {envelope.NewEvent(written{1}, envelope.To("nobody")), &unknown, `"nobody"`},
		"oversize":     {envelope.NewEvent(written{1}, large), &oversize, "max_payload_bytes (2000)"},
		"option":       {envelope.NewEvent(inside{1}, envelope.Published()), &option, "Published"},
		"literal":      {envelope.Event{Data: inside{1}}, &unencodable, "build events with envelope.NewEvent"},
		"no id":        {envelope.NewEvent(inside{1}).From(envelope.Source{Aggregate: "Order"}), &unencodable, "has no id"},
	} {
		written, err := tx.Insert(t.Context(), w, envelope.NewEvent(inside{0}), c.event)
		require.ErrorAs(t, err, c.as, name)
		require.ErrorContains(t, err, c.says, name)
		require.Nil(t, written, name)
	}
	for _, source := range []envelope.Source{
		{Aggregate: "Order", ID: "1", Version: -1}, {Aggregate: "Order", ID: "1", Sequence: -1}, {Aggregate: "Order", ID: "1", Sequence: math.MaxInt32 + 1},
	} {
		_, err := tx.Insert(t.Context(), w, envelope.NewEvent(inside{1}).From(source))
		require.ErrorContains(t, err, "write storetest.inside raised by Order 1: its Version is ")
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := tx.Insert(t.Context(), w, envelope.NewEvent(inside{1}))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Len(t, t.facts("id"), 1)

	tx = t.beginWriter(t.background())
	cancel()
	_, err = tx.Insert(ctx, w, envelope.NewEvent(inside{1}))
	require.ErrorIs(t, err, context.Canceled)
	_ = tx.Rollback()
	_, err = w.Insert(t.Context(), t.DB, envelope.NewEvent(inside{1}))
	require.ErrorContains(t, err, "*sql.DB is a pool")
	conn, err := t.DB.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for db, want := range map[outbox.Execer]string{
		conn: "*sql.Conn is a pool or a connection", // and so are an *ent.Client, a *gorm.PreparedStmtDB and the pool of the plugin
		nil:  "the transaction is nil", (*sql.Tx)(nil): "the transaction is nil",
	} {
		_, err = w.Insert(t.Context(), db, envelope.NewEvent(inside{1}))
		require.ErrorContains(t, err, want)
	}
	require.Len(t, t.facts("id"), 1)
}

// With serialize_keys a key is locked from the insert to the end of the transaction.
func testWriterKeyLocks(t *table) {
	if t.OneWriter {
		t.Skip("writers take turns on this database: there is nothing to lock")
	}
	serial := t.writer(func(r *outbox.Routing) { r.SerializeKeys = true })
	free := t.writer()
	try := func(w *outbox.Writer, id string) error { // without waiting
		tx := t.beginWriter(t.background())
		require.NoError(t, tx.Exec(t.Context(), t.sql.impatient))
		_, err := tx.Insert(t.Context(), w, envelope.NewEvent(inside{1}).From(order(id)))
		require.NoError(t, tx.Rollback())
		return err
	}
	for _, end := range []func(WriterTx) error{WriterTx.Commit, WriterTx.Rollback} {
		tx := t.beginWriter(t.background())
		_, err := tx.Insert(t.Context(), serial, envelope.NewEvent(written{1}).From(order("b")), envelope.NewEvent(inside{2}).From(order("a")))
		require.NoError(t, err)
		require.ErrorContains(t, try(serial, "a"), "lock the ordering keys")
		require.ErrorContains(t, try(serial, "b"), "lock the ordering keys")
		require.NoError(t, try(serial, "c"))
		require.NoError(t, try(free, "a"), "all writers of a table must agree")
		require.NoError(t, end(tx))
		require.NoError(t, try(serial, "a"))
	}
}

// Committed tells the relay of this process which shards of which brokers have rows: once, from
// whatever goroutine it is called.
func testCommitted(t *table) {
	w := t.writer()
	var (
		mu   sync.Mutex
		told []wakeup.WakeUp
		n    int
	)
	cancel := w.OnCommit(func(wakeUps []wakeup.WakeUp) bool {
		mu.Lock()
		defer mu.Unlock()
		told, n = wakeup.Merge(told, wakeUps...), n+1
		return true
	})
	insert := func(events ...envelope.Event) *outbox.Written {
		tx := t.beginWriter(t.background())
		written, err := tx.Insert(t.Context(), w, events...)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		return written
	}
	events := []envelope.Event{envelope.NewEvent(written{1}).From(order("1"))}
	for i := range 40 {
		events = append(events, envelope.NewEvent(inside{i}).From(order(strconv.Itoa(i))))
	}
	result := insert(events...)
	require.Zero(t, n, "not before the commit")
	var group sync.WaitGroup
	for range 8 {
		group.Go(result.Committed)
	}
	group.Wait()
	require.Equal(t, 1, n)
	want := map[string]wakeup.Set{}
	for _, fact := range t.facts("target_broker, shard") {
		var name string
		var shard int
		_, err := fmt.Sscan(fact, &name, &shard)
		require.NoError(t, err)
		want[name] |= wakeup.SetOf(shard)
	}
	got := map[string]wakeup.Set{}
	for _, wakeUp := range told {
		got[wakeUp.Broker] = wakeUp.Shards
	}
	require.Equal(t, want, got, "as the database puts rows into shards")

	insert().Committed()
	(*outbox.Written)(nil).Committed()
	require.Equal(t, 1, n, "nothing was written")
	cancel()
	insert(envelope.NewEvent(inside{1})).Committed()
	require.Equal(t, 1, n, "no relay is there any more")
}
