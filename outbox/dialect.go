package outbox

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// Dialect names a kind of database, in GORM's own words.
type Dialect string

// The databases that Fanout keeps its table in.
const (
	Postgres  Dialect = "postgres"
	SQLServer Dialect = "sqlserver"
	SQLite    Dialect = "sqlite"
	MySQL     Dialect = "mysql" // MariaDB, too
)

// DialectNames is how a message lists them.
const DialectNames = "postgres, sqlserver, mysql or sqlite"

// DefaultTable is the name of the outbox table where the configuration gives none.
const DefaultTable = "outbox_messages"

// Shards is the number of shards, per [Class], into which the open rows of one broker are spread by
// a hash of their ordering key. Claims are serialised per shard; four shards keep that off the
// critical path and still read the table in order.
const Shards = 4

// ValidateTable reports whether name can be the name of the outbox table: letters, digits and
// underscores, at most 48 of them, with an optional schema in front. Table names become part of SQL
// texts, so nothing else is let through.
func ValidateTable(name string) error {
	if err := dbtable.CheckName(name, DefaultTable); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}

// ParseDialect turns GORM's name of a dialect into ours.
func ParseDialect(name string) (Dialect, error) {
	switch d := Dialect(name); d {
	case Postgres, SQLServer, SQLite, MySQL:
		return d, nil
	default:
		return "", fmt.Errorf("outbox: database %q is not supported: use %s", name, DialectNames)
	}
}

// placeholder appends the n-th bind parameter (from 1) in the dialect's own form.
func (d Dialect) placeholder(dst []byte, n int) []byte {
	switch d {
	case Postgres:
		return fmt.Appendf(dst, "$%d", n)
	case SQLServer:
		return fmt.Appendf(dst, "@p%d", n)
	default:
		return append(dst, '?')
	}
}

// rowsPerInsert bounds one INSERT of many rows. SQLite takes 32,766 parameters, PostgreSQL and
// MySQL 65,535; beyond some hundred rows longer statements bring nothing.
const rowsPerInsert = 500

// rowsAtOnce is how many of rows one INSERT takes.
func (d Dialect) rowsAtOnce(rows []Row) int {
	most := min(len(rows), rowsPerInsert)
	bytes := 0
	for n := range most {
		if bytes += rows[n].Bytes(); n > 0 && bytes > limits.BytesPerInsert {
			return n
		}
	}
	return most
}

// idArg is a message's id as a bind parameter, for the place that idPlaceholder makes. On SQL Server the binary form
// would arrive with its bytes swapped.
func (d Dialect) idArg(id uuid.UUID) any {
	if d == MySQL {
		return hex.EncodeToString(id[:])
	}
	return id.String()
}

// idPlaceholder appends the place of an id. MySQL has no type for it, so its column holds the bytes. They travel as
// digits: MySQL fails to list its sessions while one of them runs a text with bytes that are no UTF-8.
func (d Dialect) idPlaceholder(dst []byte, n int) []byte {
	if d == MySQL {
		return append(dst, "UNHEX(?)"...)
	}
	return d.placeholder(dst, n)
}

// timeArg is a point in time as a bind parameter: integer microseconds on SQLite, which has no type
// for it, UTC cut to microseconds on PostgreSQL, and the same as text on MySQL, whose driver would
// turn it into the time zone of the DSN. A zero time is NULL.
func (d Dialect) timeArg(t time.Time) any {
	switch {
	case t.IsZero():
		return nil
	case d == SQLite:
		return t.UnixMicro()
	case d == MySQL:
		return t.UTC().Format("2006-01-02 15:04:05.000000")
	default:
		return t.UTC().Truncate(time.Microsecond)
	}
}

// textArg is an optional text as a bind parameter; empty is NULL.
func textArg(s string) any {
	if s == "" {
		return nil
	}
	return s
}
