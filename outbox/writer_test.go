package outbox_test

import (
	"database/sql"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

type OrderNoted struct{ OrderID string }

func noted() *envelope.Catalog {
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderNoted](events)
	return events
}

// Everything that is wrong with a configuration is reported at once, with its remedy.
func TestNewWriterReportsEveryMistake(t *testing.T) {
	t.Parallel()
	lost := envelope.NewCatalog("ordering")
	envelope.Register[OrderNoted](lost, envelope.Published(), envelope.To("nobody"))
	for name, c := range map[string]struct {
		config outbox.WriterConfig
		says   []string
	}{
		"zero":     {outbox.WriterConfig{}, []string{`database "" is not supported: use postgres`, "there is no catalog: make one with envelope.NewCatalog"}},
		"database": {outbox.WriterConfig{Dialect: "oracle", Events: lost}, []string{`database "oracle" is not supported`, `addressed to broker "nobody"`}},
		"routing": {
			outbox.WriterConfig{Dialect: outbox.Postgres, Events: noted(), Routing: outbox.Routing{Table: "a b", Notify: true}},
			[]string{`"a b"`, "set WriterConfig.Notify to that of the application, or Routing.Notify to false"},
		},
	} {
		writer, err := outbox.NewWriter(c.config)
		assert.Nil(t, writer, name)
		for _, says := range c.says {
			assert.ErrorContains(t, err, says, name)
		}
	}
	_, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.Postgres, Events: noted(), Routing: outbox.Routing{Notify: true}, Notify: (*sql.DB)(nil)})
	require.ErrorContains(t, err, "set WriterConfig.Notify to that of the application", "or the first commit would end the process")
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.SQLite, Events: noted(), Routing: outbox.Routing{Notify: true}})
	require.NoError(t, err, "where there is no NOTIFY, no pool is needed")
	assert.Equal(t, outbox.SQLite, writer.Dialect())
	assert.Equal(t, outbox.DefaultTable, writer.Routing().Table)
}

// A writer adds no statement of its own: one INSERT, and with serialize_keys one for the locks. Relays
// are notified after the commit, on another connection.
func TestStatementsOfAWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tx, pool spy
		writer, err := outbox.NewWriter(outbox.WriterConfig{
			Dialect: outbox.Postgres, Events: noted(), Routing: outbox.Routing{SerializeKeys: true, Notify: true}, Notify: &pool,
		})
		require.NoError(t, err)
		source := envelope.Source{Aggregate: "Order", ID: "7", Version: 2}
		written, err := writer.Insert(t.Context(), &tx, envelope.NewEvent(OrderNoted{"7"}).From(source), envelope.NewEvent(OrderNoted{"7"}).From(source))
		require.NoError(t, err)
		require.Len(t, tx.texts, 2)
		assert.Contains(t, tx.texts[0], "pg_advisory_xact_lock")
		assert.Contains(t, tx.texts[1], "INSERT INTO outbox_messages")
		synctest.Wait()
		assert.Empty(t, pool.texts, "nothing is notified before the commit")
		written.Committed()
		written.Committed()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, pool.texts, 1)
		assert.Contains(t, pool.texts[0], "pg_notify")
		assert.Equal(t, "fanout:outbox_messages", pool.args[0][0])
		assert.Len(t, tx.texts, 2)
	})
}

// An error shows no more of an id than tells it, and no line of its own in a log.
func TestErrorsOfAWriterAreShort(t *testing.T) {
	t.Parallel()
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.SQLite, Events: noted()})
	require.NoError(t, err)
	for _, id := range []string{strings.Repeat("x", 1<<20), "7\nlevel=ERROR"} {
		_, err = writer.Insert(t.Context(), &spy{}, envelope.NewEvent(OrderNoted{"7"}).From(envelope.Source{Aggregate: "Order", ID: id}))
		require.ErrorContains(t, err, "raised by Order ")
		assert.Less(t, len(err.Error()), 1000)
		assert.NotContains(t, err.Error(), "\n")
	}
}

// What NewWriter has not made refuses to write, and does nothing else.
func TestEmptyWriter(t *testing.T) {
	t.Parallel()
	for _, writer := range []*outbox.Writer{nil, {}} {
		_, err := writer.Insert(t.Context(), &spy{}, envelope.NewEvent(OrderNoted{"7"}))
		require.EqualError(t, err, "outbox: insert 1 events: the writer is empty: make writers with outbox.NewWriter, and check its error")
		assert.Empty(t, writer.Dialect())
		assert.Empty(t, writer.Routing())
		writer.OnCommit(nil)()
	}
	(&outbox.Written{}).Committed()
}
