// Package sqladmin is what people and housekeeping do to an outbox table, once for all databases:
// browse, requeue, replay, abandon, unblock, pause, count and purge, keep the audit log and the
// heartbeats.
//
// The rules and everything that a caller sees are written here, in Go. What a database is told
// stands in sql/<database>, a file for each statement; a statement of one name takes arguments of
// the same names and returns the same columns everywhere. A new database is a folder of these files
// and a [Database].
package sqladmin

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed sql
var sqlFiles embed.FS

// A Purpose is what a transaction is for. Its settings are in settings_<purpose>.sql, where a
// database has any.
type Purpose string

// Purposes.
const (
	Plain   Purpose = ""       // one statement, of a process or a person, as a transaction of its own
	Browse  Purpose = "browse" // for people, who do not wait long
	Count   Purpose = "count"  // reads much of the table, or looks so to a planner
	Find    Purpose = "find"   // an operator's filter, planned for its arguments
	Purge   Purpose = "purge"
	Operate Purpose = "operate" // under the locks of shards
)

// A Conn runs statements: a pool, a connection or a transaction.
type Conn interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Work is what is done on a connection. It begins anew each time it is called, since it is called
// again where the database breaks it off.
type Work func(ctx context.Context, conn Conn) error

// A Database is what differs beside the SQL. Its methods are safe for concurrent use; their errors
// carry the remedy.
type Database interface {
	// Read runs work that only reads: in a transaction that sees one state of the tables, unless
	// the purpose is Plain or the database does without. It bounds the time of what people wait
	// for.
	Read(ctx context.Context, purpose Purpose, work Work) error
	// Write runs work in a transaction in which each statement sees what was committed before it,
	// or makes each statement a transaction.
	Write(ctx context.Context, purpose Purpose, work Work) error
	// Bind turns a value into the arguments of a statement: a string is a name or a number in
	// words, a Text anything, a List one argument, a zero time NULL.
	Bind(name string, value any) []sql.NamedArg
	// ShardLocks names the locks under which the shards of brokers are claimed, in the order in
	// which all take them, so that none wait in a circle. It is for lock_shards.sql.
	ShardLocks(brokers []string) List
	// Marks are what is known of where the open rows of brokers begin, as arguments of the statements
	// for backlogs; without a broker those that say nothing is known. Nil where the database needs none.
	Marks(brokers ...string) map[string]any
	// Changed tells relays that rows of brokers may be delivered, after the commit.
	Changed(ctx context.Context, brokers ...string)
	// Denied says whether an error is that of a role that may not read payloads.
	Denied(err error) bool
}

// Text is text of any length and content, which the database gets as far as it can hold it.
type Text string

// Storable replaces what a text column refuses.
func (t Text) Storable() string {
	return strings.ToValidUTF8(strings.ReplaceAll(string(t), "\x00", "\uFFFD"), "\uFFFD")
}

// A List is a list of texts or numbers that travels as one argument.
type List struct{ Items any }

// Dialect is how statements of one kind of database are sent and answered.
type Dialect struct {
	// Name of the folder with the SQL, and the first word of errors.
	Name string
	// Numbered makes $1 of the first argument, and so on; otherwise they keep their names.
	Numbered bool
	// Positional makes ? of each argument, in the order of the text, and as often as it is used.
	Positional bool
	// Shards of all priority classes.
	Shards int
	// Answers is how the first column of an answer begins. What begins otherwise, a trigger has
	// added. Where it is set, a statement that changes rows answers with their number; otherwise
	// the driver tells it.
	Answers string
}

// The dialects.
var (
	Postgres  = Dialect{Name: "postgres", Numbered: true, Shards: outbox.Classes * outbox.Shards}
	SQLite    = Dialect{Name: "sqlite", Shards: outbox.Classes}
	SQLServer = Dialect{Name: "sqlserver", Shards: outbox.Classes * outbox.Shards, Answers: "fanout_"}
	MySQL     = Dialect{Name: "mysql", Positional: true, Shards: outbox.Classes * outbox.Shards}
)

// ErrIncomplete says that an answer ended early without an error.
var ErrIncomplete = errors.New("the server's answer is incomplete: is a proxy, or a trigger that ends the batch, in between?")

// Admin works on one table. It is safe for concurrent use.
type Admin struct {
	db         Database
	dialect    Dialect
	table      string
	statements map[string]statement
	known      atomic.Pointer[[]string] // the brokers of the configuration, sorted
}

// New reads the statements for a table, whose name has been checked. It does not connect.
func New(db Database, dialect Dialect, table string) (*Admin, error) {
	if err := driver.ValidateTableAmong(table, sqlFiles, path.Join("sql", dialect.Name)); err != nil {
		return nil, err
	}
	statements, err := compiled[dialect]()
	if err != nil {
		return nil, err
	}
	a := &Admin{db: db, dialect: dialect, table: table, statements: make(map[string]statement, len(statements))}
	for name, s := range statements {
		a.statements[name] = statement{text: driver.RenderSQL(s.text, table), parameters: s.parameters}
	}
	return a, nil
}

// compiled are the statements of the dialects, for any table. They are compiled once, since that
// takes milliseconds and tests open thousands of stores.
var compiled = map[Dialect]func() (map[string]statement, error){
	Postgres:  sync.OnceValues(func() (map[string]statement, error) { return load(Postgres) }),
	SQLite:    sync.OnceValues(func() (map[string]statement, error) { return load(SQLite) }),
	SQLServer: sync.OnceValues(func() (map[string]statement, error) { return load(SQLServer) }),
	MySQL:     sync.OnceValues(func() (map[string]statement, error) { return load(MySQL) }),
}

// Text is a statement as it is sent; empty where the dialect has none of the name.
func (a *Admin) Text(name string) string { return a.statements[name].text }

// Replace replaces something in a statement, for tests that are less patient. It must not run
// beside anything else.
func (a *Admin) Replace(name, before, after string) {
	if s, ok := a.statements[name]; ok {
		s.text = strings.ReplaceAll(s.text, before, after)
		a.statements[name] = s
	}
}

// Texts are all statements and the names of their parameters.
func (a *Admin) Texts() (texts map[string]string, parameters map[string][]string) {
	texts, parameters = map[string]string{}, map[string][]string{}
	for name, s := range a.statements {
		texts[name], parameters[name] = s.text, s.parameters
	}
	return texts, parameters
}

// A statement is a text and the names of what may be given to it.
type statement struct {
	text       string
	parameters []string
}

var (
	includes  = regexp.MustCompile(`\{\{include (\w+)\}\}\n?`)
	eachShard = regexp.MustCompile(`\{\{each shard (\w+)\}\}\n?`)
	macro     = regexp.MustCompile(`\{\{(uuid|micros|ids|texts) ([@\w.]+)\}\}`)
	content   = regexp.MustCompile(`\{\{content (.*?) else (.*?)\}\}`)
	parameter = regexp.MustCompile(`(@?)@([a-z]\w*)`)
)

// hidden is added to the name of a statement for a role that may not read payloads.
const hidden = " without payloads"

// load compiles all files, for any table. Those whose names begin with part_ are included in others:
//
//	{{include part_x}}          the text of the file
//	{{each shard part_x}}       once for each shard, joined by UNION ALL, where {{shard}} is its number
//	{{content A else B}}        A, or B for a role that may not read payloads
//	{{uuid x}}, {{micros x}}    MySQL's bytes of a UUID as text, and a time as microseconds since 1970
//	{{ids @x}}, {{texts @x}}    a list of numbers or texts as rows of item and its place, from 1, on MySQL
//	{{giving way}}              before a statement of MySQL's that would wait for rows; see [GivingWay]
//	{{processlist}}             the sessions on MySQL; see [Processlist]
func load(dialect Dialect) (map[string]statement, error) {
	names, err := fs.Glob(sqlFiles, path.Join("sql", dialect.Name, "*.sql"))
	if err != nil {
		return nil, fmt.Errorf("%s: list the embedded SQL: %w", dialect.Name, err)
	}
	texts := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(sqlFiles, name)
		if err != nil {
			return nil, fmt.Errorf("%s: read the embedded SQL: %w", dialect.Name, err)
		}
		texts[strings.TrimSuffix(path.Base(name), ".sql")] = Bare(string(text))
	}
	statements := map[string]statement{}
	for name, text := range texts {
		if strings.HasPrefix(name, "part_") {
			continue
		}
		add := func(name, text string) {
			text = Macros(expand(texts["part_prelude"]+text, texts, dialect))
			statements[name] = compile(content.ReplaceAllString(text, "$1"), dialect)
			if content.MatchString(text) {
				statements[name+hidden] = compile(content.ReplaceAllString(text, "$2"), dialect)
			}
		}
		if add(name, text); strings.Contains(text, searchPage) { // which searches within lists have another one of
			add(name+inLists, strings.Replace(text, searchPage, "{{include part_search_lists}}", 1))
		}
	}
	return statements, nil
}

// searchPage is the end of a search that is not within lists.
const searchPage = "{{include part_search_page}}"

// Part returns the text of a file without its comments, for statements of a store that share it.
func Part(dialect Dialect, name string) string {
	text, err := sqlFiles.ReadFile(path.Join("sql", dialect.Name, name+".sql"))
	if err != nil {
		panic(err) // an embedded file
	}
	return Bare(string(text))
}

// Bare leaves out comments, which are for readers of the files: sent along they would be a third of
// a statement. No literal holds "--".
func Bare(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimRight(line, " \n"); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// expand fills in parts, which may have parts in turn.
func expand(text string, texts map[string]string, dialect Dialect) string {
	text = eachShard.ReplaceAllStringFunc(text, func(match string) string {
		part := expand(texts[eachShard.FindStringSubmatch(match)[1]], texts, dialect)
		shards := make([]string, dialect.Shards)
		for shard := range shards {
			shards[shard] = strings.ReplaceAll(part, "{{shard}}", strconv.Itoa(shard))
		}
		return strings.Join(shards, " UNION ALL\n")
	})
	return includes.ReplaceAllStringFunc(text, func(match string) string {
		return expand(texts[includes.FindStringSubmatch(match)[1]], texts, dialect)
	})
}

// macros are what MySQL has no short words for.
var macros = map[string]string{
	"uuid":   "LOWER(INSERT(INSERT(INSERT(INSERT(HEX($), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-'))",
	"micros": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', $)",
	"ids":    "JSON_TABLE($, '$[*]' COLUMNS (place FOR ORDINALITY, item BIGINT PATH '$'))",
	"texts":  "JSON_TABLE($, '$[*]' COLUMNS (place FOR ORDINALITY, item LONGTEXT PATH '$'))",
}

// GivingWay makes a statement of MariaDB's end at once, with error 1205, where another session has
// locked a row. InnoDB breaks off whoever has changed fewer rows, so that an operator's UPDATE would
// lose against a batch of ours. It also passes over the CHECKs: a session can write a row that they
// refuse, and then every UPDATE that meets the row would fail. MySQL has neither setting for a
// statement, and no session there passes over a CHECK; to MySQL this is a comment.
const GivingWay = "/*M! SET STATEMENT innodb_lock_wait_timeout = 0, check_constraint_checks = 0 FOR */"

// Processlist is the server's list of sessions. MySQL's information_schema.processlist is deprecated, and MariaDB
// has no other. MariaDB ignores comments with the version numbers of MySQL 5.7.
const Processlist = "/*M! information_schema.processlist *//*!50700 performance_schema.processlist */"

// Macros fills in what a text for MySQL has for short.
func Macros(text string) string {
	text = strings.NewReplacer("{{giving way}}", GivingWay, "{{processlist}}", Processlist).Replace(text)
	return macro.ReplaceAllStringFunc(text, func(match string) string {
		found := macro.FindStringSubmatch(match)
		return strings.Replace(macros[found[1]], "$", found[2], 1)
	})
}

// compile finds the parameters of a text. Variables that a batch declares are among them; they are
// not given.
func compile(text string, dialect Dialect) statement {
	var s statement
	s.text = parameter.ReplaceAllStringFunc(text, func(match string) string {
		name := strings.TrimPrefix(match, "@")
		if strings.HasPrefix(name, "@") { // @@ROWCOUNT
			return match
		}
		place := slices.Index(s.parameters, name)
		if place < 0 || dialect.Positional {
			place = len(s.parameters)
			s.parameters = append(s.parameters, name)
		}
		switch {
		case dialect.Numbered:
			return "$" + strconv.Itoa(place+1)
		case dialect.Positional:
			return "?"
		default:
			return match
		}
	})
	return s
}

// Compile makes a text of a store's own what these statements are: ready to be sent for a table, with
// the names of its parameters. {{include}} takes what include returns for a name.
func Compile(text string, include func(name string) string, dialect Dialect, table string) (sent string, parameters []string) {
	texts := map[string]string{}
	for _, pattern := range []*regexp.Regexp{includes, eachShard} {
		for _, match := range pattern.FindAllStringSubmatch(text, -1) {
			texts[match[1]] = strings.TrimSuffix(Bare(include(match[1])), "\n")
		}
	}
	s := compile(Macros(expand(Bare(text), texts, dialect)), dialect)
	return driver.RenderSQL(s.text, table), s.parameters
}

// args are values by the names of parameters. A statement gets those that it uses.
type args map[string]any

// bind makes the arguments of a statement.
func (a *Admin) bind(s statement, given args) []any {
	values := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for _, arg := range a.db.Bind(name, given[name]) {
			values[arg.Name] = arg.Value
		}
	}
	for _, arg := range a.db.Bind("now", nil) {
		values[arg.Name] = arg.Value
	}
	var bound []any
	for _, name := range s.parameters {
		value, ok := values[name]
		switch {
		case a.dialect.Numbered || a.dialect.Positional:
			bound = append(bound, value)
		case ok:
			bound = append(bound, sql.Named(name, value))
		}
	}
	return bound
}

// A scanner reads the columns of one row.
type scanner func(dest ...any) error

// errEnough ends the reading of rows without an error.
var errEnough = errors.New("enough")

// query runs a statement and calls row for each row of its answer.
func (a *Admin) query(ctx context.Context, conn Conn, name string, given args, row func(scanner) error) error {
	s := a.statements[name]
	rows, err := conn.QueryContext(ctx, s.text, a.bind(s, given)...)
	if err != nil {
		return err
	}
	defer rows.Close() // Err tells
	answered := a.dialect.Answers == ""
	for more := true; more; more = rows.NextResultSet() { // to the end, since an error can stand behind the last row
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		ours := len(columns) > 0 && strings.HasPrefix(columns[0], a.dialect.Answers)
		answered = answered || ours
		for rows.Next() {
			if !ours {
				continue
			}
			if err := row(rows.Scan); errors.Is(err, errEnough) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil || answered {
		return err
	}
	return ErrIncomplete
}

// exec runs a statement and returns how many rows it has changed.
func (a *Admin) exec(ctx context.Context, conn Conn, name string, given args) (changed int64, err error) {
	if a.dialect.Answers != "" {
		return a.number(ctx, conn, name, given)
	}
	s := a.statements[name]
	result, err := conn.ExecContext(ctx, s.text, a.bind(s, given)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// number runs a statement that answers with one number.
func (a *Admin) number(ctx context.Context, conn Conn, name string, given args) (int64, error) {
	var n sql.NullInt64
	err := a.query(ctx, conn, name, given, func(scan scanner) error { return scan(&n) })
	if err == nil && !n.Valid {
		err = ErrIncomplete
	}
	return n.Int64, err
}

// read runs work with the settings for the purpose.
func (a *Admin) read(ctx context.Context, purpose Purpose, work Work) error {
	work = a.set(purpose, work)
	if ctx.Value(patient{}) == nil {
		return a.db.Read(ctx, purpose, work)
	}
	return a.db.Read(ctx, purpose, func(_ context.Context, conn Conn) error { return work(ctx, conn) })
}

type patient struct{}

// Patient is for tests on a busy machine: what a person asks with the context may take as long as
// the server needs. Settings of a transaction stay as they are; see [Admin.Replace].
func Patient(ctx context.Context) context.Context { return context.WithValue(ctx, patient{}, true) }

// write runs work with the settings for the purpose.
func (a *Admin) write(ctx context.Context, purpose Purpose, work Work) error {
	return a.db.Write(ctx, purpose, a.set(purpose, work))
}

func (a *Admin) set(purpose Purpose, work Work) Work {
	s, ok := a.statements["settings_"+string(purpose)]
	if !ok {
		return work
	}
	return func(ctx context.Context, conn Conn) error {
		if _, err := conn.ExecContext(ctx, s.text); err != nil {
			return err
		}
		return work(ctx, conn)
	}
}

// change runs one statement as a transaction and returns how many rows it has changed.
func (a *Admin) change(ctx context.Context, name string, given args) (changed int64, err error) {
	err = a.write(ctx, Plain, func(ctx context.Context, conn Conn) error {
		changed, err = a.exec(ctx, conn, name, given)
		return err
	})
	return changed, err
}

// failed says what failed, where.
func (a *Admin) failed(err error, format string, values ...any) error {
	return fmt.Errorf("%s: "+format+": %w", slices.Concat([]any{a.dialect.Name}, values, []any{err})...)
}

// A moment is a time as databases have it: a time, microseconds since 1970, or the word infinity.
// NULL is the zero time, and so is what is none; fault then says why.
type moment struct {
	time.Time

	fault string
}

// Scan implements sql.Scanner.
func (m *moment) Scan(value any) error {
	*m = moment{}
	switch value := value.(type) {
	case nil:
	case time.Time:
		m.Time = value.UTC()
	case int64:
		m.Time = time.UnixMicro(value).UTC()
	case string:
		m.fault = fmt.Sprintf("is %.50q", value)
		if value == "infinity" || value == "-infinity" {
			m.fault = "is " + value
		}
	default:
		m.fault = "is no time"
	}
	return nil
}
