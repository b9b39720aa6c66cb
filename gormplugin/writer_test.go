package gormplugin_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

type WriterOrder struct {
	ID      string
	Version int64
	uow.Aggregate
}

// The plugin and an outbox.Writer store the same, down to the bytes of each payload, but for what is
// drawn for each event.
func TestAWriterStoresTheSame(t *testing.T) {
	t.Parallel()
	for name, correlation := range map[string]string{"with a correlation id": "c-1", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storesTheSame(t, envelope.WithCorrelationID(t.Context(), correlation))
		})
	}
}

func storesTheSame(t *testing.T, ctx context.Context) {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[classPlaced](events, envelope.Published())
	envelope.Register[classNoted](events)
	routing := outbox.Routing{External: []outbox.Route{
		{Broker: "partner", Extensions: []string{"tenant_id"}}, {Broker: "events", Format: envelope.FormatCloudEvents}, {Broker: "picky", Types: []string{"*.classNoted.*"}},
	}}
	db, _, err := openShop(t, events, routing, &WriterOrder{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.SQLite, Events: events, Routing: routing})
	require.NoError(t, err)

	ctx = envelope.WithActor(envelope.WithTenantID(ctx, "acme"), "grace")
	ctx = envelope.WithTrace(ctx, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b")
	options := [][]envelope.Option{
		nil,
		{envelope.To("events"), envelope.Priority(envelope.PriorityHigh)},
		{envelope.Unordered()},
		{envelope.Extension("n", 1), envelope.Key(func(classPlaced) string { return "own" })},
	}
	require.NoError(t, db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		order := &WriterOrder{ID: "42", Version: 3}
		for _, o := range options {
			order.Raise(classPlaced{"42"}, o...)
		}
		order.Raise(classNoted{"42"})
		if err := tx.Create(order).Error; err != nil {
			return err
		}
		return uow.Publish(tx, classNoted{"1"})
	}))
	captured := outboxRows(t, db)

	// The same messages: their ids and times are those that the plugin has stored.
	version := int64(3)
	source := envelope.Source{Aggregate: "WriterOrder", ID: "42", Version: version, ExpectedVersion: &version}
	var again []envelope.Event
	for _, o := range options {
		again = append(again, envelope.NewEvent(classPlaced{"42"}, o...).From(source))
	}
	again = append(again, envelope.NewEvent(classNoted{"42"}).From(source), envelope.NewEvent(classNoted{"1"}))
	n := 0
	for _, row := range captured {
		if row["target_broker"] != outbox.DefaultInternalBroker {
			continue
		}
		message, err := envelope.DecodeInternal([]byte(row["payload"].(string)))
		require.NoError(t, err)
		again[n].ID, again[n].Time = message.Metadata.Headers.ID, message.Metadata.Headers.Time
		n++
	}
	require.Equal(t, len(again), n)
	_, err = pool.ExecContext(t.Context(), "DELETE FROM outbox_messages")
	require.NoError(t, err)
	tx, err := pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = writer.Insert(ctx, tx, again...)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, captured, outboxRows(t, db))
}

// writer is one for the events of these tests.
func (b *bench) writer() *outbox.Writer {
	b.t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[classNoted](events)
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: b.dialect, Events: events, Routing: outbox.Routing{Table: b.at.outbox()}})
	b.ok(err)
	return writer
}

// A writer in a transaction of the plugin would write before it what was raised earlier. It refuses, whatever
// leads to the transaction.
func TestAWriterRefusesTransactionsOfThePlugin(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		refused := func(conn any) {
			b.t.Helper()
			_, err := b.writer().Insert(b.t.Context(), conn.(outbox.Execer), envelope.NewEvent(classNoted{"1"}))
			require.ErrorContains(b.t, err, "outbox: insert 1 events: the transaction is of a GORM handle with the plugin")
			require.ErrorContains(b.t, err, "raise them on the aggregate, or use uow.Publish(tx, event)")
		}
		for _, prepare := range []bool{false, true} {
			b.ok(b.db.Session(&gorm.Session{PrepareStmt: prepare}).Transaction(func(tx *gorm.DB) error {
				b.ok(uow.Publish(tx, Happened{"x"}))
				refused(tx.Statement.ConnPool)
				sqlTx, ok := gormplugin.SQLTx(tx)
				require.True(b.t, ok)
				refused(sqlTx)
				refused(struct{ *sql.Tx }{sqlTx})                   // as those of sqlx and bun
				return tx.Transaction(func(nested *gorm.DB) error { // a savepoint
					refused(nested.Statement.ConnPool)
					return nil
				})
			}))
		}
		b.want(": x", ": x")
	})
}

// Beside the plugin a writer writes in transactions that the plugin does not commit: those of the pool below it, and
// of a handle without it.
func TestAWriterBesideThePlugin(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		own, _ := b.own()
		_, err := b.writer().Insert(b.t.Context(), own, envelope.NewEvent(classNoted{"1"}))
		b.ok(err)
		b.ok(own.Commit())
		for _, prepare := range []bool{false, true} {
			plain := b.open(&gorm.Config{PrepareStmt: prepare})
			b.ok(plain.Transaction(func(tx *gorm.DB) error {
				_, err := b.writer().Insert(b.t.Context(), tx.Statement.ConnPool, envelope.NewEvent(classNoted{"2"}))
				return err
			}))
		}
		assert.Len(b.t, b.rows(), 3)
	})
}

// outboxRows are the columns that writers fill, in the order of the rows.
func outboxRows(t *testing.T, db *gorm.DB) (rows []map[string]any) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT message_id, target_broker, stream, type, ordering_key, priority, content_type, headers, aggregate_type, aggregate_id,"+
		" correlation_id, causation_id, tenant_id, available_at, expires_at, CAST(payload AS text) AS payload FROM outbox_messages ORDER BY id").Scan(&rows).Error)
	return rows
}
