package sqldedup

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

//go:embed sql
var statements embed.FS

//go:embed migrations
var migrations embed.FS

// DefaultTable is the name of the table where no other is given.
const DefaultTable = "inbox_deduplication"

// mySQL is GORM's name of MySQL and MariaDB.
const mySQL = "mysql"

// texts are the statements of one database and one table.
type texts struct {
	dialect, table string

	contains, add, create, remove, purge, lock, steps, applied, record string
	// release gives the lock of a migration back, where that does not end with a transaction.
	release string
}

// newTexts reads and renders them.
func newTexts(dialect, table string) (*texts, error) {
	if err := dbtable.CheckName(table, DefaultTable); err != nil {
		return nil, fmt.Errorf("sqldedup: %w", err)
	}
	t := &texts{dialect: dialect, table: table}
	if _, err := statements.ReadDir(path.Join("sql", dialect)); err != nil {
		return nil, fmt.Errorf("sqldedup: database %q is not supported: use postgres, sqlserver, mysql or sqlite", dialect)
	}
	if err := dbtable.CheckAmong(table, statements, path.Join("sql", dialect)); err != nil {
		return nil, fmt.Errorf("sqldedup: %w", err)
	}
	all := map[string]*string{
		"contains": &t.contains, "add": &t.add, "create": &t.create, "remove": &t.remove, "purge": &t.purge, "lock": &t.lock,
		"steps": &t.steps, "applied": &t.applied, "record": &t.record,
	}
	if dialect == mySQL {
		all["release"] = &t.release
	}
	for name, into := range all {
		text, err := statements.ReadFile(path.Join("sql", dialect, name+".sql"))
		if err != nil {
			return nil, fmt.Errorf("sqldedup: read a statement: %w", err)
		}
		*into = dbtable.Render(string(text), table)
	}
	return t, nil
}

// time is how the database is told a time: UTC, whole microseconds. MySQL's driver would turn a time
// into the time zone of the DSN.
func (t *texts) time(at time.Time) any {
	switch t.dialect {
	case "sqlite":
		return at.UnixMicro()
	case mySQL:
		return at.UTC().Format("2006-01-02 15:04:05.000000")
	default:
		return at.UTC().Truncate(time.Microsecond)
	}
}

// A Migration is one step of the schema, with the table's name filled in. Its SQL holds several
// statements, each of which ends with a semicolon at the end of a line.
type Migration = dbtable.Migration

// Migrations returns the steps of the schema, for other tools; [Migrate] applies them. The dialect
// is GORM's name: postgres, sqlserver, mysql or sqlite. The error is that of a name.
func Migrations(dialect, table string) ([]Migration, error) {
	if _, err := newTexts(dialect, table); err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrations, path.Join("migrations", dialect))
	if err != nil {
		return nil, fmt.Errorf("sqldedup: read the migrations: %w", err)
	}
	steps, err := dbtable.Migrations(files, table)
	if err != nil {
		return nil, fmt.Errorf("sqldedup: read the migrations: %w", err)
	}
	return steps, nil
}

// statementsOf are the statements of a step, one by one: drivers take several at a time only in
// some modes.
func statementsOf(step Migration) (all []string) {
	for part := range strings.SplitSeq(step.SQL, ";\n") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// plain is a session of db that has none of its user's clauses, scopes or settings, in the same
// transaction.
func plain(db *gorm.DB) *gorm.DB {
	return db.Session(&gorm.Session{NewDB: true, SkipHooks: true, SkipDefaultTransaction: true})
}
