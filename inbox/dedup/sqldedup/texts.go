package sqldedup

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"
)

//go:embed sql
var statements embed.FS

//go:embed migrations
var migrations embed.FS

// DefaultTable is the name of the table where no other is given.
const DefaultTable = "inbox_deduplication"

// tableName allows an optional schema, and leaves room for what the names of indexes have more within the 63 bytes of PostgreSQL.
var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,47}$`)

// texts are the statements of one database and one table.
type texts struct {
	dialect, table string

	contains, add, create, remove, purge, lock, steps, applied, record string
}

// newTexts reads and renders them.
func newTexts(dialect, table string) (*texts, error) {
	if !tableName.MatchString(table) {
		return nil, fmt.Errorf("sqldedup: table name %q: use letters, digits and underscores (at most 48), with an optional schema as in %q", table, "app."+DefaultTable)
	}
	t := &texts{dialect: dialect, table: table}
	if _, err := statements.ReadDir(path.Join("sql", dialect)); err != nil {
		return nil, fmt.Errorf("sqldedup: database %q is not supported: use postgres, sqlserver or sqlite", dialect)
	}
	for name, into := range map[string]*string{
		"contains": &t.contains, "add": &t.add, "create": &t.create, "remove": &t.remove, "purge": &t.purge, "lock": &t.lock,
		"steps": &t.steps, "applied": &t.applied, "record": &t.record,
	} {
		text, err := statements.ReadFile(path.Join("sql", dialect, name+".sql"))
		if err != nil {
			return nil, fmt.Errorf("sqldedup: read a statement: %w", err)
		}
		*into = render(string(text), table)
	}
	return t, nil
}

// render fills the table's name in: {{table}} is the name as given, {{name}} that without its schema.
func render(text, table string) string {
	name := table[strings.LastIndexByte(table, '.')+1:]
	return strings.NewReplacer("{{table}}", table, "{{name}}", name).Replace(text)
}

// time is how the database is told a time: UTC, whole microseconds.
func (t *texts) time(at time.Time) any {
	if t.dialect == "sqlite" {
		return at.UnixMicro()
	}
	return at.UTC().Truncate(time.Microsecond)
}

// A Migration is one step of the schema, with the table's name filled in.
type Migration struct {
	// Version counts from 1 without gaps.
	Version int
	// Name says what the step is about.
	Name string
	// SQL is the text, ready to run; it holds several statements, each of which ends with a semicolon at the end of a line.
	SQL string
}

// String is such as "0001_deduplication".
func (m Migration) String() string { return fmt.Sprintf("%04d_%s", m.Version, m.Name) }

// Migrations returns the steps of the schema, for other tools; [Migrate] applies them. The dialect is GORM's name: postgres, sqlserver or
// sqlite. The error is that of a name.
func Migrations(dialect, table string) ([]Migration, error) {
	if _, err := newTexts(dialect, table); err != nil {
		return nil, err
	}
	dir := path.Join("migrations", dialect)
	entries, err := migrations.ReadDir(dir) // sorted
	if err != nil {
		return nil, fmt.Errorf("sqldedup: read the migrations: %w", err)
	}
	steps := make([]Migration, 0, len(entries))
	for _, entry := range entries {
		number, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("sqldedup: migration %s: %w", entry.Name(), err)
		}
		text, err := migrations.ReadFile(path.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("sqldedup: read a migration: %w", err)
		}
		steps = append(steps, Migration{Version: version, Name: name, SQL: render(string(text), table)})
	}
	return steps, nil
}

// statements are the statements of a step, one by one: drivers take several at a time only in some modes.
func (m Migration) statements() (all []string) {
	for part := range strings.SplitSeq(m.SQL, ";\n") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// plain is a session of db that has none of its user's clauses, scopes or settings, in the same transaction.
func plain(db *gorm.DB) *gorm.DB {
	return db.Session(&gorm.Session{NewDB: true, SkipHooks: true, SkipDefaultTransaction: true})
}
