// Package relaytest runs a relay over a broker, for tests of what becomes of rows while the broker
// refuses messages or is away. It needs no server but that of the broker: the outbox is a SQLite file.
package relaytest

import (
	"cmp"
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	_ "github.com/glebarez/go-sqlite" // the driver "sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// brokerName is the broker of all rows.
const brokerName = "b"

// Relay is a relay that runs. Its methods are for the goroutine of the test.
type Relay struct {
	t    *testing.T
	db   *sql.DB
	rows *outbox.Inserter
	stop func()
}

// Start runs a relay that delivers the rows of a new SQLite file to a broker, until the test ends. The
// broker stays open. A nil log logs to the output of the test.
func Start(t *testing.T, target brokers.Broker, policy outbox.Policy, log *slog.Logger) *Relay {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	rows, err := outbox.NewInserter(outbox.SQLite, outbox.DefaultTable)
	require.NoError(t, err)
	if log == nil {
		log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	processor, err := relay.NewProcessor(relay.ProcessorConfig{Database: "test", Broker: brokerName, Store: store, Target: target, Policy: policy, Log: log})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- processor.Run(ctx) }()
	r := &Relay{t: t, db: db, rows: rows, stop: sync.OnceFunc(func() {
		stop()
		assert.NoError(t, <-done)
	})}
	t.Cleanup(r.stop)
	return r
}

// Stop ends the relay before the test does. Rows can still be counted.
func (r *Relay) Stop() { r.stop() }

// Insert writes rows in one transaction, in their order. Each is for the relay's broker, and has what
// it lacks of a message id, a destination ("s"), a type ("T") and a payload ("{}").
func (r *Relay) Insert(rows ...outbox.Row) {
	r.t.Helper()
	for i := range rows {
		row := &rows[i]
		row.TargetBroker = brokerName
		row.MessageID = cmp.Or(row.MessageID, uuid.New())
		row.Stream, row.Type = cmp.Or(row.Stream, "s"), cmp.Or(row.Type, "T")
		if row.Payload == nil {
			row.Payload = []byte("{}")
		}
	}
	tx, err := r.db.BeginTx(r.t.Context(), nil)
	require.NoError(r.t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(r.t, r.rows.Insert(r.t.Context(), tx, rows))
	require.NoError(r.t, tx.Commit())
}

// Count returns how many rows there are of which a condition in SQL is true, such as "status = 'abandoned'".
func (r *Relay) Count(where string, args ...any) (n int) {
	r.t.Helper()
	require.NoError(r.t, r.db.QueryRowContext(r.t.Context(), "SELECT count(*) FROM "+outbox.DefaultTable+" WHERE "+where, args...).Scan(&n))
	return n
}
