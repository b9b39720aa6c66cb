package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
)

// administration is what operators and housekeeping do, the same for all databases.
type administration = sqladmin.Admin

// database is how the administration reaches the table. What it says is batches, each of which is a
// transaction or has one of its own: nothing would end one of a client that was stopped between two
// statements.
type database struct{ *Store }

// browseTime bounds what people ask: it must not occupy the server when its plan goes wrong. The
// driver tells the server to stop.
const browseTime = 5 * time.Second

var errBrowseTime = fmt.Errorf("the database did not answer within %s", browseTime)

// Read implements sqladmin.Database.
func (d database) Read(ctx context.Context, purpose sqladmin.Purpose, work sqladmin.Work) error {
	if purpose != sqladmin.Browse {
		return explain(retry(ctx, func() error { return work(ctx, d.db) }))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, browseTime, errBrowseTime)
	defer cancel()
	err := retry(ctx, func() error { return work(ctx, d.db) })
	if err != nil && errors.Is(context.Cause(ctx), errBrowseTime) {
		return fmt.Errorf("%w: %w", errBrowseTime, explain(err))
	}
	return explain(err)
}

// Write implements sqladmin.Database.
func (d database) Write(ctx context.Context, _ sqladmin.Purpose, work sqladmin.Work) error {
	err := explain(retry(ctx, func() error { return work(ctx, d.db) }))
	if numbered(err, errChanged) {
		return fmt.Errorf("%w: %w", sqladmin.ErrChanged, err)
	}
	return err
}

// Bind implements sqladmin.Database. Each parameter has one type, whatever the length of its value:
// otherwise each length would be a plan of its own.
func (database) Bind(name string, value any) []sql.NamedArg {
	switch v := value.(type) {
	case nil:
		return nil
	case sqladmin.Text:
		value = mssql.NVarCharMax(v.Storable())
	case sqladmin.List:
		list, err := jsonList(v.Items)
		if err != nil {
			panic(fmt.Sprintf("texts and numbers always encode: %v", err))
		}
		value = list
	case time.Duration:
		seconds, micros := splitDuration(v)
		return []sql.NamedArg{sql.Named(name+"_seconds", seconds), sql.Named(name+"_micros", micros)}
	case time.Time:
		value = mssql.NVarCharMax(moment(v))
	}
	return []sql.NamedArg{sql.Named(name, value)}
}

// ShardLocks implements sqladmin.Database: a shard's lock is that of its row.
func (database) ShardLocks([]string) sqladmin.List { return sqladmin.List{} }

// Marks implements sqladmin.Database: there are none.
func (database) Marks(...string) map[string]any { return nil }

// moment is a point in time as the batches read it.
func moment(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000000")
}

// Changed implements sqladmin.Database. Other processes find it by polling.
func (database) Changed(context.Context, ...string) {}

// Denied implements sqladmin.Database.
func (database) Denied(error) bool { return false }
