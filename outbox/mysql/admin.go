package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
)

// administration is what operators and housekeeping do, the same for all databases.
type administration = sqladmin.Admin

// database is how the administration reaches the table.
type database struct{ *Store }

// browseTime bounds what people ask: it must not occupy the server when its plan goes wrong.
const browseTime = 5 * time.Second

var errBrowseTime = fmt.Errorf("the database did not answer within %s", browseTime)

// Read implements sqladmin.Database. Each statement sees one state of the tables.
func (d database) Read(ctx context.Context, purpose sqladmin.Purpose, work sqladmin.Work) error {
	if purpose != sqladmin.Browse {
		return explain(retry(ctx, func() error { return work(ctx, d.db) }))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, browseTime, errBrowseTime)
	defer cancel()
	err := retry(ctx, func() error { return work(ctx, d.db) })
	if err != nil && errors.Is(context.Cause(ctx), errBrowseTime) {
		return fmt.Errorf("%w: %w", errBrowseTime, err)
	}
	return explain(err)
}

// Write implements sqladmin.Database.
func (d database) Write(ctx context.Context, _ sqladmin.Purpose, work sqladmin.Work) error {
	return explain(retry(ctx, func() error {
		return d.transaction(ctx, func(tx *sql.Tx) error { return work(ctx, tx) })
	}))
}

// Bind implements sqladmin.Database. Lists are JSON, and durations microseconds; times are texts in
// UTC, since the driver would turn them into the time zone of the DSN. LIMIT takes no expressions,
// so that bounds come with what is one and two more.
func (database) Bind(name string, value any) []sql.NamedArg {
	switch v := value.(type) {
	case nil:
		return nil
	case sqladmin.Text:
		value = v.Storable()
	case sqladmin.List:
		value = jsonList(v.Items)
		if value == "null" {
			value = "[]"
		}
	case time.Duration:
		value = v.Microseconds()
	case time.Time:
		if value = nil; !v.IsZero() {
			value = v.UTC().Format("2006-01-02 15:04:05.000000")
		}
	case int64:
		return []sql.NamedArg{sql.Named(name, v), sql.Named(name+"_1", v+1), sql.Named(name+"_2", v+2)}
	}
	return []sql.NamedArg{sql.Named(name, value)}
}

// ShardLocks implements sqladmin.Database: a shard's lock is that of its row.
func (database) ShardLocks([]string) sqladmin.List { return sqladmin.List{} }

// Marks implements sqladmin.Database.
func (d database) Marks(brokers ...string) map[string]any {
	marks := make([]waterMark, classShards)
	for _, broker := range brokers { // one
		marks = d.water.marks(broker, classShards, time.Time{})
	}
	given, versions := map[string]any{"server": ""}, make([]int64, classShards)
	for shard, m := range marks {
		given["floor_"+strconv.Itoa(shard)], given["late_"+strconv.Itoa(shard)] = m.from(), sqladmin.List{Items: m.late}
		versions[shard] = -1
		if m.floor > 0 {
			versions[shard], given["server"] = m.version, m.server
		}
	}
	given["versions"] = sqladmin.List{Items: versions}
	return given
}

// Changed implements sqladmin.Database. Other processes find it by polling.
func (database) Changed(context.Context, ...string) {}

// Denied implements sqladmin.Database.
func (database) Denied(error) bool { return false }
