package gormplugin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/journal"
	bounds "github.com/gorm-fanout/fanout/internal/limits"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

type flushed struct {
	OrderID string `json:"order_id"`
}

// counting is an extension that counts how often it is encoded, once for each event that is sealed.
type counting struct{ sealed *int }

func (c counting) MarshalJSON() ([]byte, error) {
	*c.sealed++
	return []byte("true"), nil
}

type flushOrder struct{ uow.Aggregate }

func newFlushPlugin(t testing.TB) *Plugin {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[flushed](events, envelope.Published())
	p := New(events, outbox.Routing{External: []outbox.Route{{Broker: "partner"}}})
	require.NoError(t, p.check())
	return p
}

// inserts takes statements, as a database does.
type inserts struct {
	each func(args []any)
}

func (i *inserts) ExecContext(_ context.Context, _ string, args ...any) (sql.Result, error) {
	if i.each != nil {
		i.each(args)
	}
	return driver.RowsAffected(1 << 20), nil // whatever it was given
}

func (*inserts) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.ErrUnsupported
}

// commitOf does what a commit does, without GORM and without a database: n aggregates with one
// event each.
func commitOf(t testing.TB, p *Plugin, dialect outbox.Dialect, orders []flushOrder, inherited envelope.Context, database outbox.ExecQueryer) {
	t.Helper()
	inserter, err := p.inserter(dialect)
	require.NoError(t, err)
	var notes journal.Journal
	for i := range orders {
		orders[i].Raise(flushed{"1"})
		recorder, _ := journal.RecorderOf(reflect.ValueOf(&orders[i]).Elem())
		require.NoError(t, notes.Track(recorder, nil, envelope.Source{Aggregate: "Order", ID: "order-" + strconv.Itoa(i)}, &inherited))
	}
	flush, err := notes.Collect(true)
	require.NoError(t, err)
	require.Len(t, flush, len(orders))
	wakeUps, err := p.write(t.Context(), inserter, database, flush, nil)
	require.NoError(t, err)
	if p.Listeners() == 0 {
		require.Empty(t, wakeUps)
	} else {
		require.Len(t, wakeUps, 2)
		require.Equal(t, []string{"default", "partner"}, []string{wakeUps[0].Broker, wakeUps[1].Broker})
	}
	notes.Committed(flush)
}

// Every statement keeps within what its database takes, and none is shorter than it must be.
func TestStatementsKeepTheLimits(t *testing.T) {
	t.Parallel()
	const columns = 16
	for dialect, limit := range map[outbox.Dialect]struct{ parameters, rows int }{
		outbox.Postgres:  {65535, 500},
		outbox.SQLite:    {32766, 500},
		outbox.SQLServer: {2, 500},
	} {
		for _, events := range []int{1, 62, 63, 250, 251, 500, 501, 1250} {
			t.Run(fmt.Sprintf("%s/%d", dialect, events), func(t *testing.T) {
				t.Parallel()
				var rows []int
				database := &inserts{each: func(args []any) {
					require.LessOrEqual(t, len(args), limit.parameters)
					n := len(args) / columns
					if dialect == outbox.SQLServer { // all rows are one text
						n = strings.Count(args[0].(string), `"message_id":`)
					}
					rows = append(rows, n)
				}}
				plugin := newFlushPlugin(t)
				if events%2 == 0 {
					hooks{plugin}.OnCommit(func([]wakeup.WakeUp) bool { return true })
				}
				commitOf(t, plugin, dialect, make([]flushOrder, events), envelope.Context{}, database)
				require.LessOrEqual(t, slices.Max(rows), limit.rows)
				total := 0
				for _, n := range rows {
					total += n
				}
				require.Equal(t, 2*events, total, "one row per broker")
				require.Len(t, rows, (2*events+limit.rows-1)/limit.rows, "as few statements as the limits allow")
			})
		}
	}
}

// bulky are events of which a few fill a statement.
type bulky struct{ Text string }

// Large events are written by statements of a bounded size, and no more than two statements' are held.
func TestAFlushHoldsFewBytes(t *testing.T) {
	t.Parallel()
	const events, size = 40, 900 << 10
	for _, dialect := range []outbox.Dialect{outbox.Postgres, outbox.SQLite, outbox.SQLServer, outbox.MySQL} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			catalog := envelope.NewCatalog("shop")
			envelope.Register[bulky](catalog, envelope.Published())
			p := New(catalog, outbox.Routing{External: []outbox.Route{{Broker: "partner"}}, MaxPayloadBytes: 2 * size})
			inserter, err := p.inserter(dialect)
			require.NoError(t, err)
			var notes journal.Journal
			for i := range events {
				require.NoError(t, notes.Publish(journal.NewRaised(bulky{strings.Repeat("x", size)}, nil), &envelope.Context{IdempotencyKey: strconv.Itoa(i)}))
			}
			flush, err := notes.Collect(true)
			require.NoError(t, err)
			sealed, written := 0, 0
			for i := range flush {
				flush[i].Context = &envelope.Context{Extensions: map[string]any{"n": counting{&sealed}}}
			}
			database := &inserts{each: func(args []any) {
				bytes := 0
				for _, arg := range args {
					switch arg := arg.(type) {
					case string:
						bytes += len(arg)
					case []byte:
						bytes += len(arg)
					}
				}
				assert.Less(t, bytes, 2*bounds.BytesPerInsert, "of a statement") // SQL Server's is JSON
				assert.Less(t, 2*sealed-written, 15, "rows that are held")
				if dialect == outbox.SQLServer {
					written += strings.Count(args[0].(string), `"message_id":`)
				} else {
					written += len(args) / 16
				}
			}}
			_, err = p.write(t.Context(), inserter, database, flush, nil)
			require.NoError(t, err)
			assert.Equal(t, 2*events, written)
		})
	}
}
