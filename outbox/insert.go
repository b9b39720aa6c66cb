package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

// insertColumns are the columns that writers fill; all others have defaults.
var insertColumns = [...]string{
	"message_id", "target_broker", "stream", "type", "ordering_key", "priority", "content_type", "headers",
	"aggregate_type", "aggregate_id", "correlation_id", "causation_id", "tenant_id", "available_at", "expires_at", "payload",
}

// Execer is what an insert needs: *sql.DB, *sql.Tx, *sql.Conn and GORM's pools have it.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Inserter writes rows into the outbox table of one database. Its statements are built once per
// number of rows and kept. It is safe for concurrent use.
type Inserter struct {
	dialect  Dialect
	table    string
	lockKeys string   // SQL text, empty where there is nothing to lock
	fresh    sync.Map // number of rows -> SQL text
	repeat   sync.Map
}

// NewInserter prepares inserts into table. The table name is checked with [ValidateTable].
func NewInserter(dialect Dialect, table string) (*Inserter, error) {
	if err := ValidateTable(table); err != nil {
		return nil, err
	}
	return &Inserter{dialect: dialect, table: table, lockKeys: dialect.lockKeysSQL(table)}, nil
}

// Dialect is the kind of database that the statements are for.
func (i *Inserter) Dialect() Dialect { return i.dialect }

// Insert writes rows with as few statements as the database's limits allow. Rows keep their order:
// the first gets the lowest id. A row that exists already (same message and broker) is an error,
// and so is one whose texts are too long: a *[MalformedError], see [Row.Validate].
func (i *Inserter) Insert(ctx context.Context, db Execer, rows []Row) error {
	return i.insert(ctx, db, rows, &i.fresh, i.insertSQL)
}

// InsertMissing writes the rows that are not there yet and leaves the others as they are.
func (i *Inserter) InsertMissing(ctx context.Context, db Execer, rows []Row) error {
	return i.insert(ctx, db, rows, &i.repeat, i.insertMissingSQL)
}

func (i *Inserter) insert(ctx context.Context, db Execer, rows []Row, texts *sync.Map, build func(int) string) error {
	if err := i.check(rows); err != nil {
		return err
	}
	for len(rows) > 0 {
		n := min(len(rows), i.dialect.rowsPerInsert())
		text, ok := texts.Load(n)
		if !ok {
			text, _ = texts.LoadOrStore(n, build(n))
		}
		args := make([]any, 0, n*len(insertColumns))
		for r := range rows[:n] {
			args = i.dialect.rowArgs(args, &rows[r])
		}
		if err := i.exec(ctx, db, n, text.(string), args); err != nil { //nolint:forcetypeassert // the map holds nothing else
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// check refuses rows that the table would refuse, in words that say more.
func (i *Inserter) check(rows []Row) error {
	for r := range rows {
		if err := rows[r].Validate(); err != nil {
			return fmt.Errorf("outbox: insert message %s for broker %.64q into %s: %w", rows[r].MessageID, rows[r].TargetBroker, i.table, err)
		}
	}
	return nil
}

// exec runs one statement that inserts n rows.
func (i *Inserter) exec(ctx context.Context, db Execer, n int, text string, args []any) error {
	_, err := db.ExecContext(ctx, text, args...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: insert %d rows into %s: %w", n, i.table, dbtable.Explain(err, ErrSchema))
}

// rowArgs appends one row in the order of insertColumns.
func (d Dialect) rowArgs(args []any, r *Row) []any {
	contentType := r.ContentType
	if contentType == "" {
		contentType = "application/json"
	}
	payload := r.Payload
	if payload == nil {
		payload = []byte{} // an untyped nil is no binary value on SQL Server
	}
	return append(args,
		d.uuidArg(r.MessageID), r.TargetBroker, r.Stream, r.Type, textArg(r.OrderingKey), r.Priority, contentType,
		textArg(r.Headers), textArg(r.AggregateType), textArg(r.AggregateID), textArg(r.CorrelationID),
		textArg(r.CausationID), textArg(r.TenantID), d.timeArg(r.AvailableAt), d.timeArg(r.ExpiresAt), payload)
}

// insertSQL is INSERT INTO t (columns) VALUES (...), (...).
func (i *Inserter) insertSQL(rows int) string {
	dst := i.appendHead(nil)
	dst = append(dst, " VALUES "...)
	return string(i.appendValues(dst, rows, false))
}

// insertMissingSQL passes over rows whose key is there already.
func (i *Inserter) insertMissingSQL(rows int) string {
	if i.dialect != SQLServer {
		return i.insertSQL(rows) + " ON CONFLICT (message_id, target_broker) DO NOTHING"
	}
	// No MERGE, which is known for races. HOLDLOCK keeps the gap closed between the test and the
	// insert. Identities are handed out in the order of ORDER BY; without it the join may hand over
	// the rows in any order.
	dst := i.appendHead(nil)
	dst = append(dst, " SELECT "...)
	dst = appendColumns(dst, "v.")
	dst = append(dst, " FROM (VALUES "...)
	dst = i.appendValues(dst, rows, true)
	dst = append(dst, ") AS v (ordinal, "...)
	dst = appendColumns(dst, "")
	dst = append(dst, ") WHERE NOT EXISTS (SELECT 1 FROM "...)
	dst = append(dst, i.table...)
	return string(append(dst, " AS o WITH (UPDLOCK, HOLDLOCK) WHERE o.message_id = v.message_id AND o.target_broker = v.target_broker) ORDER BY v.ordinal"...))
}

func (i *Inserter) appendHead(dst []byte) []byte {
	dst = append(dst, "INSERT INTO "...)
	dst = append(dst, i.table...)
	dst = append(dst, " ("...)
	return append(appendColumns(dst, ""), ')')
}

func (i *Inserter) appendValues(dst []byte, rows int, ordinal bool) []byte {
	for r := range rows {
		if r > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, '(')
		if ordinal {
			dst = fmt.Appendf(dst, "%d, ", r)
		}
		for c := range insertColumns {
			if c > 0 {
				dst = append(dst, ", "...)
			}
			dst = i.dialect.placeholder(dst, r*len(insertColumns)+c+1)
		}
		dst = append(dst, ')')
	}
	return dst
}

func appendColumns(dst []byte, prefix string) []byte {
	for c, name := range insertColumns {
		if c > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(append(dst, prefix...), name...)
	}
	return dst
}

// ErrSchema is wrapped by every error about a missing, incomplete or outdated schema. The remedy is
// "fanout migrate", or what a [driver.SchemaError] says.
var ErrSchema = errors.New("the outbox schema is not up to date: run \"fanout migrate\"")
