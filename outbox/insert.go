package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
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

// ExecQueryer is what an insert needs that may have to look what is there: *sql.DB, *sql.Tx, *sql.Conn
// and GORM's pools have it.
type ExecQueryer interface {
	Execer
	Queryer
}

// Inserter writes rows into the outbox table of one database. Its statements are built once per
// number of rows and kept. It is safe for concurrent use.
type Inserter struct {
	dialect  Dialect
	table    string
	lockKeys string   // SQL text, empty where there is nothing to lock
	texts    sync.Map // shape -> SQL text
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

// Table is the name of the table in which rows are inserted.
func (i *Inserter) Table() string { return i.table }

// Insert writes rows with as few statements as the database's limits allow. Rows keep their order:
// the first gets the lowest id. A row that exists already (same message and broker) is an error,
// and so are one whose texts are too long (a *[MalformedError], see [Row.Validate]) and one that the
// database has not stored although it reports no error: [ErrDiscarded].
func (i *Inserter) Insert(ctx context.Context, db Execer, rows []Row) error {
	return i.insert(ctx, db, nil, rows)
}

// InsertMissing writes the rows that are not there yet and leaves the others as they are. Its errors
// are those of Insert.
func (i *Inserter) InsertMissing(ctx context.Context, db ExecQueryer, rows []Row) error {
	return i.insert(ctx, db, db, rows)
}

// insert writes rows; with a look, those that are not there yet.
func (i *Inserter) insert(ctx context.Context, db Execer, look Queryer, rows []Row) error {
	if err := i.check(rows); err != nil {
		return err
	}
	for len(rows) > 0 {
		n := i.dialect.rowsAtOnce(rows)
		if look != nil && i.dialect == MySQL {
			n = 1
		}
		text, args, err := i.statement(rows[:n], look != nil)
		if err != nil {
			return err
		}
		wrote, err := i.exec(ctx, db, n, text, args)
		if err == nil && wrote < int64(n) {
			err = i.discarded(ctx, look, rows[:n], wrote)
		}
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// shape tells the texts of a table's inserts apart.
type shape struct {
	rows    int // 0 where one text serves any number
	missing bool
	apart   bool // payloads are
}

// statement is the text that inserts rows, and its parameters.
func (i *Inserter) statement(rows []Row, missing bool) (text string, args []any, err error) {
	of := shape{rows: len(rows), missing: missing}
	if i.dialect == SQLServer {
		if args, err = jsonArgs(rows); err != nil {
			return "", nil, err
		}
		of.rows, of.apart = 0, len(args) > 1
	} else {
		args = make([]any, 0, len(rows)*len(insertColumns))
		for r := range rows {
			args = i.dialect.rowArgs(args, &rows[r])
		}
		if missing && i.dialect == MySQL {
			args = append(args, args[0], args[1]) // message_id and target_broker
		}
	}
	known, ok := i.texts.Load(of)
	if !ok {
		known, _ = i.texts.LoadOrStore(of, i.build(of))
	}
	return known.(string), args, nil //nolint:forcetypeassert // the map holds nothing else
}

func (i *Inserter) build(of shape) string {
	switch {
	case i.dialect == SQLServer:
		return i.jsonInsertSQL(of.apart, of.missing)
	case of.missing && i.dialect == MySQL:
		return i.insertAbsentSQL()
	case of.missing:
		return i.insertSQL(of.rows) + " ON CONFLICT (message_id, target_broker) DO NOTHING"
	default:
		return i.insertSQL(of.rows)
	}
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

// exec runs one statement that inserts n rows, and returns how many the database has stored.
func (i *Inserter) exec(ctx context.Context, db Execer, n int, text string, args []any) (wrote int64, err error) {
	result, err := db.ExecContext(ctx, text, args...)
	if err == nil {
		wrote, err = result.RowsAffected()
	}
	if err != nil {
		return 0, fmt.Errorf("outbox: insert %d rows into %s: %w", n, i.table, i.explain(err))
	}
	return wrote, nil
}

// explain adds the remedy to an error about a table that is not there. On PostgreSQL it may be there, in
// a schema that the session does not look into.
func (i *Inserter) explain(err error) error {
	if errors.Is(err, driver.ErrBadConn) { // by which drivers say both
		return fmt.Errorf("%w: the connection was lost, or the transaction still reads rows, of Rows() say: close them before it commits", err)
	}
	explained := dbtable.Explain(err, ErrSchema)
	if i.dialect == Postgres && errors.Is(explained, ErrSchema) && !strings.Contains(i.table, ".") {
		return fmt.Errorf("%w; or, where sessions set search_path, as for tenants, name its schema in outbox.table, as in %q", explained, "public."+i.table)
	}
	return explained
}

// ErrDiscarded is wrapped by the error about an INSERT that succeeded and stored fewer rows than it
// was given. Were it taken for done, the transaction would commit without its messages.
var ErrDiscarded = errors.New("the database has discarded rows of the outbox without an error")

// discarded is the error about rows that were not stored, nil where all are there.
func (i *Inserter) discarded(ctx context.Context, look Queryer, rows []Row, wrote int64) error {
	var remedy string
	switch i.dialect {
	case Postgres:
		remedy = "look for a trigger that returns NULL, a rule or a foreign table in place of it"
	case SQLite:
		remedy = "look for a trigger with RAISE(IGNORE)"
	case SQLServer:
		remedy = "look for an INSTEAD OF trigger, and for SET NOCOUNT ON in the session or the server's user options, which hides the count"
	case MySQL: // where triggers can refuse rows, and discard none; those that are there do not count
		if look != nil {
			return nil
		}
	}
	if look != nil {
		absent, err := i.absent(ctx, look, rows)
		if err != nil {
			return fmt.Errorf("outbox: look for the rows that were inserted into %s: %w", i.table, err)
		}
		if absent == 0 {
			return nil
		}
		wrote = int64(len(rows) - absent)
	}
	return fmt.Errorf("outbox: insert %d rows into %s: %d were stored: %w: %s", len(rows), i.table, wrote, ErrDiscarded, remedy)
}

// rowArgs appends one row in the order of insertColumns.
func (d Dialect) rowArgs(args []any, r *Row) []any {
	payload := r.Payload
	if payload == nil {
		payload = []byte{} // nil would be NULL
	}
	return append(args,
		d.idArg(r.MessageID), r.TargetBroker, r.Stream, r.Type, textArg(r.OrderingKey), r.Priority, r.contentType(),
		textArg(r.Headers), textArg(r.AggregateType), textArg(r.AggregateID), textArg(r.CorrelationID),
		textArg(r.CausationID), textArg(r.TenantID), d.timeArg(r.AvailableAt), d.timeArg(r.ExpiresAt), payload)
}

// insertSQL is INSERT INTO t (columns) VALUES (...), (...).
func (i *Inserter) insertSQL(rows int) string {
	dst := fmt.Appendf(nil, "INSERT INTO %s (%s) VALUES ", i.table, strings.Join(insertColumns[:], ", "))
	for r := range rows {
		if r > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, '(')
		for c := range insertColumns {
			if c > 0 {
				dst = append(dst, ", "...)
			}
			if c == 0 {
				dst = i.dialect.idPlaceholder(dst, r*len(insertColumns)+1)
			} else {
				dst = i.dialect.placeholder(dst, r*len(insertColumns)+c+1)
			}
		}
		dst = append(dst, ')')
	}
	return string(dst)
}

// insertAbsentSQL inserts one row in MySQL unless it is there. IGNORE would pass over other faults, too,
// and ON DUPLICATE KEY UPDATE needs the right to change every column, which writers do not have.
func (i *Inserter) insertAbsentSQL() string {
	columns := strings.Join(insertColumns[:], ", ")
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT UNHEX(?)%s FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM %s AS there WHERE there.message_id = UNHEX(?) AND there.target_broker = ?)",
		i.table, columns, strings.Repeat(", ?", len(insertColumns)-1), i.table)
}

// ErrSchema is wrapped by every error about a missing, incomplete or outdated schema. The remedy is
// "fanout migrate", or what a [admin.SchemaError] says.
var ErrSchema = errors.New("the outbox schema is not up to date: run \"fanout migrate\"")
