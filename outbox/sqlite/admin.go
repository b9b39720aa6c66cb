package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
)

// administration is what operators and housekeeping do, the same for all databases.
type administration = sqladmin.Admin

// database is how the administration reaches the table.
type database struct{ *Store }

// answerTime is how long what a person asks may take. It takes no lock that a writer waits for.
const answerTime = 5 * time.Second

var errSlow = errors.New("the database took too long to answer, so the query was cancelled")

// Read implements sqladmin.Database, without a transaction, which would keep the log from being
// checkpointed.
func (d database) Read(ctx context.Context, purpose sqladmin.Purpose, work sqladmin.Work) error {
	if purpose != sqladmin.Browse {
		return explain(d.patiently(ctx, func() error { return work(ctx, d.db) }))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.answerTime, errSlow)
	defer cancel()
	err := d.patiently(ctx, func() error { return work(ctx, d.db) })
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return fmt.Errorf("%w after %s: %w", errSlow, d.answerTime, err)
	}
	return explain(err)
}

// Write implements sqladmin.Database. One writer has the whole file, and with it all shards.
func (d database) Write(ctx context.Context, _ sqladmin.Purpose, work sqladmin.Work) error {
	return d.write(ctx, func(conn *sql.Conn) error { return work(ctx, conn) })
}

// Bind implements sqladmin.Database. Lists are JSON, times microseconds; now is the clock of the
// process, in which SQLite runs.
func (d database) Bind(name string, value any) []sql.NamedArg {
	switch v := value.(type) {
	case sqladmin.Text:
		value = v.Storable()
	case sqladmin.List:
		list, err := json.Marshal(v.Items)
		if err != nil {
			panic(fmt.Sprintf("texts and numbers always encode: %v", err))
		}
		value = string(list)
	case time.Duration:
		value = v.Microseconds()
	case time.Time:
		if value = nil; !v.IsZero() {
			value = v.UnixMicro()
		}
	}
	if name == "now" {
		value = d.micros()
	}
	return []sql.NamedArg{sql.Named(name, value)}
}

// ShardLocks implements sqladmin.Database: the transaction is the lock of all shards.
func (database) ShardLocks([]string) sqladmin.List { return sqladmin.List{} }

// Marks implements sqladmin.Database: there are none.
func (database) Marks(...string) map[string]any { return nil }

// Changed implements sqladmin.Database. Other processes find it by polling.
func (database) Changed(context.Context, ...string) {}

// Denied implements sqladmin.Database.
func (database) Denied(error) bool { return false }
