package schemacheck

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

// Wanted reads the facts from the migrations, in which the tables' names are filled in. It knows CREATE
// TABLE, CREATE INDEX and a few other statements; any other is an error.
func Wanted(dialect Dialect, steps ...dbtable.Migration) (Facts, error) {
	var tables []*Reading
	for _, step := range steps {
		for _, statement := range split(Scan(dialect, step.SQL), ";") {
			var err error
			if tables, err = wantedStatement(dialect, tables, statement); err != nil {
				return nil, err
			}
		}
	}
	var facts Facts
	for _, table := range tables {
		facts = append(facts, table.Facts...)
	}
	return facts, nil
}

func wantedStatement(dialect Dialect, tables []*Reading, text []Token) ([]*Reading, error) {
	name := 2 // where a table's name stands
	switch {
	case is(text, "set"), is(text, "insert"): // options of the session, rows
		return tables, nil
	case is(text, "create", "table"):
		if is(from(text, name), "if", "not", "exists") {
			name += 3
		}
		table := &Reading{Dialect: dialect, Name: at(text, name).Text}
		if len(tables) > 0 {
			table.Owner = " of " + table.Name
		}
		return append(tables, table), table.create(text)
	case is(text, "alter", "table"): // ... set (lock_escalation = disable)
	default:
		name = find(text, "on") + 1 // create [unique] index ... on ...
	}
	n := slices.IndexFunc(tables, func(r *Reading) bool { return strings.EqualFold(bare(r.Name), bare(at(text, name).Text)) })
	if n < 0 {
		return nil, fmt.Errorf("schemacheck: a statement that cannot be read: %s", Text(text))
	}
	switch table := tables[n]; {
	case is(text, "create", "index"), is(text, "create", "unique", "index"):
		table.createIndex(text)
	case is(from(text, name+1), "set", "(", "lock_escalation", "="):
		table.add(Table+table.Name, "lock escalation", strings.ToUpper(at(text, name+5).Text))
	default:
		return nil, fmt.Errorf("schemacheck: a statement that cannot be read: %s", Text(text))
	}
	return tables, nil
}

func bare(table string) string { return table[strings.LastIndexByte(table, '.')+1:] }

// A Reading collects what CREATE statements say about one table: those of the migrations, or those
// that SQLite and MySQL tell in place of a catalog of expressions.
type Reading struct {
	Dialect Dialect
	// Name of the table, and Owner what its columns have behind theirs: nothing, or " of " and the
	// table's name.
	Name, Owner string
	// Facts that were read.
	Facts Facts
}

// Read adds what one statement of the database says, CREATE TABLE or CREATE INDEX.
func (r *Reading) Read(statement string) error {
	text := Scan(r.Dialect, statement)
	if is(text, "create", "index") || is(text, "create", "unique", "index") {
		r.createIndex(text)
		return nil
	}
	return r.create(text)
}

func (r *Reading) add(object, property, value string) {
	r.Facts = r.Facts.With(object, property, value)
}

// create reads CREATE TABLE name (columns and constraints) options.
func (r *Reading) create(text []Token) error {
	open := find(text, "(")
	body := group(text, open)
	if len(body) == 0 {
		return fmt.Errorf("schemacheck: a statement that cannot be read: %s", Text(text))
	}
	options := from(text, open+len(body)+2)
	if r.Dialect == MySQL {
		r.add(Table+r.Name, "engine", option(options, "engine"))
	} else {
		r.add(Table+r.Name, "kind", "table")
	}
	for _, item := range split(body, ",") {
		named := is(item, "constraint")
		name := ""
		if named && len(item) < 3 { // SQLite allows a name alone
			continue
		}
		if named {
			name, item = unquoted(item[1]), item[2:]
		}
		open := find(item, "(")
		columns := group(item, open)
		switch {
		case unquoted(item[0]) != item[0].Text: // a name, whatever the word
			r.column(item, option(options, "collate"))
		case is(item, "check") && named:
			r.check(constraint+name, columns, from(item, open+len(columns)+2))
		case is(item, "check"), is(item, "foreign"): // not ours
		case is(item, "primary", "key"), is(item, "unique"), is(item, "key"):
			r.key(name, item, columns)
		case is(item, "fulltext"), is(item, "spatial"), is(item, "period"), is(item, "exclude"): // not ours
		default:
			r.column(item, option(options, "collate"))
		}
	}
	return nil
}

// check reads a CHECK constraint and what stands behind it.
func (r *Reading) check(object string, expression, rest []Token) {
	r.add(object, CheckExpression, Text(expression))
	switch r.Dialect {
	case Postgres:
		r.add(object, "valid", yes)
	case SQLServer:
		r.add(object, "enabled", yes)
		r.add(object, "trusted", yes)
	case MySQL:
		r.add(object, "enforced", yesNo(!is(rest, "not", "enforced")))
	case SQLite: // each constraint holds
	}
}

const yes = "yes"

func yesNo(is bool) string {
	if is {
		return yes
	}
	return "no"
}

// option is what stands behind a word and perhaps a "=".
func option(tokens []Token, word string) string {
	n := find(tokens, word) + 1
	if at(tokens, n).Text == "=" {
		n++
	}
	if n >= len(tokens) {
		return None
	}
	return tokens[n].Text
}

// key reads a primary key, a unique constraint or an index that stands among the columns.
func (r *Reading) key(name string, item, columns []Token) {
	primary, unique := is(item, "primary"), !is(item, "key")
	switch r.Dialect {
	case SQLServer:
		r.add(index+name, "kind", strings.ToUpper(item[find(item, "(")-1].Text))
		r.indexed(index+name, unique, columns)
		r.add(index+name, "enabled", yes)
	case MySQL:
		object := index + "PRIMARY" + r.Owner
		if !primary {
			object = index + unquoted(item[find(item, "(")-1])
		}
		r.indexed(object, unique, columns)
		if behind := words(from(item, find(item, "(")+len(columns)+2)); strings.Contains(behind, "invisible") || strings.Contains(behind, "ignored") {
			r.add(object, "ignored", yes)
		}
	default:
		if r.Dialect == SQLite && primary { // which its catalog tells of the columns
			for n, part := range split(columns, ",") {
				r.add(column+unquoted(part[0])+r.Owner, "primary key", "part "+strconv.Itoa(n+1))
			}
			return
		}
		if name == "" {
			return // not ours
		}
		kind := "unique"
		if primary {
			kind = "primary key"
		}
		r.add(constraint+name, kind, r.list(columns))
	}
}

// createIndex reads CREATE [UNIQUE] INDEX name ON table (columns) [INCLUDE (columns)] [WHERE ...].
func (r *Reading) createIndex(text []Token) {
	object := index + unquoted(at(text, find(text, "index")+1))
	open := find(text, "(")
	columns := group(text, open)
	switch r.Dialect {
	case Postgres:
		r.add(object, "kind", "btree")
	case SQLServer:
		r.add(object, "kind", "NONCLUSTERED")
	case MySQL, SQLite: // there is one kind
	}
	r.indexed(object, is(text, "create", "unique"), columns)
	rest := from(text, open+len(columns)+2)
	if is(rest, "include") {
		included := group(rest, 1)
		rest = from(rest, len(included)+3)
		names := strings.Split(r.list(included), ", ")
		slices.Sort(names)
		r.add(object, "included", strings.Join(names, ", "))
	}
	if is(rest, "where") {
		r.add(object, Predicate, Text(rest[1:]))
	}
	switch r.Dialect {
	case Postgres:
		r.add(object, "valid", yes)
	case SQLServer:
		r.add(object, "enabled", yes)
	case MySQL, SQLite: // each index is in use
	}
}

func (r *Reading) indexed(object string, unique bool, columns []Token) {
	r.add(object, "unique", yesNo(unique))
	r.add(object, "columns", r.list(columns))
	if r.Dialect != Postgres {
		return
	}
	var expressions []string
	for _, item := range split(columns, ",") {
		if find(item, "(") < len(item) {
			expressions = append(expressions, Text(item))
		}
	}
	if len(expressions) > 0 {
		r.add(object, Expression, strings.Join(expressions, ", ")) // which PostgreSQL compares as a row
	}
}

// list are columns as they compare. PostgreSQL has an expression in place of one.
func (r *Reading) list(columns []Token) string {
	var names []string
	for _, item := range split(columns, ",") {
		if r.Dialect == Postgres && find(item, "(") < len(item) {
			names = append(names, "("+Expression+")")
			continue
		}
		names = append(names, words(item))
	}
	return strings.Join(names, ", ")
}

func words(tokens []Token) string {
	var all []string
	for _, token := range tokens {
		all = append(all, token.Word())
	}
	return strings.Join(all, " ")
}

// ends are words that stand behind a column's type, or behind its default.
var ends = []string{
	"not", "null", "default", "constraint", "check", "collate", "primary", "unique", "generated", "as", "auto_increment", "autoincrement",
	"identity", "references", "character", "charset", "comment", "on", "stored", "virtual", "persisted", "persistent", "invisible",
}

// untilEnd is the length of what ends before one of these words, outside of parentheses.
func untilEnd(tokens []Token) int {
	depth := 0
	for i, token := range tokens {
		switch token.Text {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 && i > 0 && slices.Contains(ends, token.Word()) {
			return i
		}
	}
	return len(tokens)
}

// column reads a column's name, type and what else stands there.
func (r *Reading) column(text []Token, collation string) {
	object, text := column+unquoted(text[0])+r.Owner, text[1:]
	kind := ""
	if n := untilEnd(text); !is(text, "as") {
		kind = typeName(r.Dialect, text[:n])
		r.add(object, "type", kind)
		text = text[n:]
	}
	if r.Dialect != MySQL || !isText(kind) {
		collation = None // a table's collation is that of its texts
	}
	nullable, persisted := true, false
	for len(text) > 0 {
		n := 1
		switch {
		case is(text, "not", "null"):
			nullable, n = false, 2
		case is(text, "collate"):
			collation, n = at(text, 1).Text, 2
		case is(text, "persisted"):
			persisted = true
		case text[0].Text == "(":
			n = len(group(text, 0)) + 2
		default:
			n = r.origin(object, text)
		}
		text = from(text, n)
	}
	if r.Dialect == SQLite {
		collation = strings.ToUpper(collation)
	}
	if !strings.EqualFold(collation, None) {
		r.add(object, "collation", collation)
	}
	r.add(object, "nullable", yesNo(nullable))
	if r.Dialect == SQLServer && r.Facts.Find(object).Value(Generated) != None {
		r.add(object, "persisted", yesNo(persisted))
	}
}

// isText reports whether a column of this type has a collation, on MySQL.
func isText(kind string) bool {
	return strings.HasSuffix(kind, "text") || strings.HasPrefix(kind, "varchar") || strings.HasPrefix(kind, "char")
}

// origin reads where a column's value comes from, and returns how many tokens say so.
func (r *Reading) origin(object string, text []Token) int {
	switch {
	case is(text, Default):
		n := 1 + untilEnd(text[1:])
		if value := Text(unwrap(text[1:n])); !strings.EqualFold(value, "null") {
			r.add(object, Default, value)
		}
		return n
	case is(text, "generated", "always", "as", "identity"):
		r.add(object, "identity", "always")
		return 4
	case is(text, "generated", "by", Default, "as", "identity"):
		r.add(object, "identity", "by default")
		return 5
	case is(text, "generated"), is(text, "as"):
		begin := min(find(text, "as")+1, len(text))
		n := begin + untilEnd(text[begin:])
		r.add(object, Generated, Text(unwrap(text[begin:n])))
		return n
	case is(text, "identity", "("): // of SQL Server
		r.add(object, "identity", "by "+at(text, 4).Text)
		return 6
	case is(text, "primary", "key"):
		r.add(object, "primary key", "part 1")
		return 2
	case is(text, "autoincrement"):
		r.add(object, "autoincrement", yes)
	case is(text, "auto_increment"):
		r.add(object, "extra", "auto_increment")
	case r.Dialect == MySQL && (is(text, "stored") || is(text, "virtual")):
		r.add(object, "extra", text[0].Word()+" generated")
	case is(text, "stored"), is(text, "virtual"):
		r.add(object, "storage", text[0].Word())
	}
	return 1
}

var (
	blanks = regexp.MustCompile(`\s*([(),])\s*`)
	// MariaDB writes how many digits a number may have, which changes nothing.
	width = regexp.MustCompile(`^(tinyint|smallint|int|bigint)\(\d+\)`)
)

// typeName is a type as the catalog writes it.
func typeName(dialect Dialect, tokens []Token) string {
	name := blanks.ReplaceAllString(strings.ToLower(Text(tokens)), "$1")
	switch {
	case dialect == SQLite:
		return strings.ToUpper(name)
	case name == "timestamptz":
		return "timestamp with time zone"
	case name == "boolean" && dialect == MySQL:
		return "tinyint(1)"
	case dialect == MySQL:
		return MySQLType(name)
	default:
		return name
	}
}

// MySQLType is a type without the width of numbers that only MariaDB tells.
func MySQLType(name string) string {
	if name == "tinyint(1)" { // a boolean, on both
		return name
	}
	return width.ReplaceAllString(name, "$1")
}
