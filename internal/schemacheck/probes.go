package schemacheck

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// probes are the rows on which expressions are evaluated: every combination of the rows of lists. An
// expression that reads no column has one row.
type probes []list

// A list has some columns.
type list struct {
	columns []Object
	rows    [][]any
}

// mostRows is how many combinations are evaluated.
const mostRows = 5000

// goShard is the column of the probes for shard that holds what Go computes.
const goShard = "fanout_go"

// shardColumn is the column on which writers, relays and the database have to agree.
const shardColumn = column + "shard"

// probes are rows that tell the two expressions apart if they differ in something that matters: each
// column that one of them reads takes values that are usual, NULL, or stand in the expressions
// themselves, and some near to these. If there are too many combinations, each row has one value
// that is not the column's first.
func (db *Database) probes(c *comparison) probes {
	if c.property == Default {
		return nil
	}
	constants := db.constants(c)
	if c.object == shardColumn {
		return probes{db.shardRows(c, constants)}
	}
	var (
		all  probes
		rows = 1
	)
	for _, name := range constants.columns {
		values := db.values(c.columns[name], constants)
		one := list{columns: []Object{c.columns[name]}}
		for _, value := range values {
			one.rows = append(one.rows, []any{value})
		}
		all = append(all, one)
		rows = min(rows*len(values), mostRows+1) // it would overflow
	}
	if rows > mostRows {
		return probes{all.singly()}
	}
	return all
}

// singly lists a row of first values, and then one for each further value.
func (p probes) singly() list {
	var (
		single list
		first  []any
	)
	for _, one := range p {
		single.columns = append(single.columns, one.columns...)
		first = append(first, one.rows[0]...)
	}
	single.rows = append(single.rows, first)
	for i, one := range p {
		for _, value := range one.rows[1:] {
			row := slices.Clone(first)
			row[i] = value[0]
			single.rows = append(single.rows, row)
		}
	}
	return single
}

// sql selects the rows, each with its number.
func (p probes) sql(dialect Dialect) string {
	number, columns := "0", ""
	sources := make([]string, 0, len(p))
	for i, one := range p {
		counter := "fanout_" + strconv.Itoa(i)
		if i == 0 {
			number = counter
		} else {
			number = fmt.Sprintf("(%s) * %d + %s", number, len(one.rows), counter)
		}
		for _, object := range one.columns {
			columns += ", " + cast(dialect, nameOf(object), object) + " AS " + nameOf(object)
		}
		sources = append(sources, one.sql(dialect, counter))
	}
	from := ""
	if len(sources) > 0 {
		from = " FROM " + strings.Join(sources, " CROSS JOIN ")
	}
	return "SELECT " + number + " AS fanout_row" + columns + from
}

// sql is the list as a table, with the rows' numbers in a column of this name. MySQL and MariaDB have
// no words in common for a list of values, and SQLite has no names for its columns.
func (l list) sql(dialect Dialect, counter string) string {
	names := []string{counter}
	for _, object := range l.columns {
		names = append(names, nameOf(object))
	}
	rows := make([]string, len(l.rows))
	for i, row := range l.rows {
		values := []string{strconv.Itoa(i)}
		for _, value := range row {
			values = append(values, literal(dialect, value))
		}
		if !hasValues(dialect) && i == 0 {
			for k := range values {
				values[k] += " AS " + names[k]
			}
		}
		rows[i] = strings.Join(values, ", ")
	}
	if hasValues(dialect) {
		return fmt.Sprintf("(VALUES (%s)) AS %s_list (%s)", strings.Join(rows, "), ("), counter, strings.Join(names, ", "))
	}
	return fmt.Sprintf("(SELECT %s) AS %s_list", strings.Join(rows, " UNION ALL SELECT "), counter)
}

func hasValues(dialect Dialect) bool {
	return dialect == Postgres || dialect == SQLServer
}

// describe a row for people.
func (p probes) describe(row int) string {
	var parts []string
	for _, one := range slices.Backward(p) {
		values := one.rows[row%len(one.rows)]
		row /= len(one.rows)
		singly := len(one.columns) > 1 && one.columns[0].Name != "column ordering_key"
		for i, object := range slices.Backward(one.columns) {
			name := nameOf(object)
			if name == goShard || singly && values[i] == one.rows[0][i] {
				continue
			}
			parts = append(parts, name+" is "+display(values[i]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Reverse(parts)
	return "which differs where " + strings.Join(parts, " and ")
}

func display(value any) string {
	switch value := value.(type) {
	case nil:
		return "NULL"
	case repeated:
		return fmt.Sprintf("%d times %q", value.times, value.character)
	case string:
		return "'" + value + "'"
	case []byte:
		return fmt.Sprintf("%d bytes", len(value))
	default:
		return fmt.Sprint(value)
	}
}

// constants are what expressions speak of.
type constants struct {
	columns, texts []string
	numbers        []int
	lengths        bool // some length is asked for
}

func (db *Database) constants(c *comparison) constants {
	var (
		found constants
		names = map[string]bool{}
	)
	for _, token := range slices.Concat(Scan(db.Dialect, c.want), Scan(db.Dialect, c.live)) {
		word := token.Word()
		n, err := strconv.Atoi(word)
		switch {
		case len(word) > 1 && strings.HasSuffix(word, "'"):
			if text := strings.ReplaceAll(word[1:len(word)-1], "''", "'"); !slices.Contains(found.texts, text) {
				found.texts = append(found.texts, text)
			}
		case err == nil && !slices.Contains(found.numbers, n):
			found.numbers = append(found.numbers, n)
		case c.columns[word].Name != "":
			names[word] = true
		}
		found.lengths = found.lengths || strings.Contains(word, "len")
	}
	found.columns = slices.Sorted(maps.Keys(names))
	return found
}

// What columns hold, as far as it makes a difference to the values that they are tried with.
const (
	intClass   = "number"
	boolClass  = "boolean"
	textClass  = "text"
	timeClass  = "time"
	uuidClass  = "uuid"
	bytesClass = "bytes"
)

func class(kind string) string {
	kind = strings.ToLower(kind)
	for _, c := range []struct{ begins, class string }{
		{"tinyint(1)", boolClass},
		{"bool", boolClass},
		{"bit", boolClass},
		{"text", textClass},
		{"mediumtext", textClass},
		{"longtext", textClass},
		{"varchar", textClass},
		{"nvarchar", textClass},
		{"char", textClass},
		{"timestamp", timeClass},
		{"datetime", timeClass},
		{"uuid", uuidClass},
		{"uniqueidentifier", uuidClass},
		{"bytea", bytesClass},
		{"varbinary", bytesClass},
		{"binary", bytesClass},
		{"longblob", bytesClass},
		{"blob", bytesClass},
	} {
		if strings.HasPrefix(kind, c.begins) {
			return c.class
		}
	}
	return intClass
}

func nameOf(object Object) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(object.Name, column), " ")
	return strings.ToLower(name)
}

var ids = []uuid.UUID{
	uuid.MustParse("01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a"), uuid.MustParse("6f9619ff-8b86-d011-b42d-00c04fc964ff"), uuid.Nil,
}

// values that a column is tried with, the ordinary one first.
func (db *Database) values(of Object, constants constants) []any {
	var values []any
	nullable := of.Value("nullable") != "no"
	kind := class(of.Value("type"))
	if name := nameOf(of); name == "message_id" || name == "lock_token" {
		kind = uuidClass
	}
	if nullable && kind != textClass {
		values = append(values, nil)
	}
	switch kind {
	case boolClass:
		values = append(values, 0, 1)
	case timeClass:
		values = append(values, times(constants)...)
	case uuidClass:
		values = append(values, db.uuids()...)
	case bytesClass:
		values = append(values, []byte{}, []byte{0, 0xff})
	case textClass:
		values = append(values, db.texts(constants)...)
		if nullable {
			values = append(values, nil)
		}
	default:
		values = append(values, db.numbers(of, constants)...)
	}
	return values
}

// times are usual ones, and those of the constants and what is next to them. Only PostgreSQL's
// expressions have such.
func times(constants constants) []any {
	values := []any{"1999-12-31 23:59:59.999999", "2999-01-02 03:04:05.678901"}
	for _, text := range constants.texts {
		at, err := time.Parse("2006-01-02 15:04:05Z07", text)
		if err != nil {
			continue
		}
		for _, at := range []time.Time{at.Add(-time.Microsecond), at, at.Add(time.Microsecond)} {
			at, before := at.UTC(), ""
			if at.Year() < 1 { // the year before 1 is 1 BC
				at, before = at.AddDate(1-2*at.Year(), 0, 0), " BC"
			}
			values = append(values, at.Format("2006-01-02 15:04:05.999999+00")+before)
		}
	}
	return values
}

func (db *Database) numbers(of Object, constants constants) []any {
	values := []any{0, 1, -1, 5}
	for _, n := range constants.numbers {
		for _, n := range []int{n - 1, n, n + 1, 1 - n, -n, -n - 1} {
			if !slices.Contains(values, any(n)) && db.holds(of, n) {
				values = append(values, n)
			}
		}
	}
	if db.Dialect == SQLite { // whose columns take anything
		values = append(values, "x")
	}
	return values
}

// holds reports whether a column can hold a number. One that it cannot would not be compared.
func (db *Database) holds(of Object, n int) bool {
	kind := strings.ToLower(of.Value("type"))
	switch {
	case db.Dialect == SQLite, strings.HasPrefix(kind, "bigint"):
		return true
	case strings.HasPrefix(kind, "int"):
		return n >= math.MinInt32 && n <= math.MaxInt32
	case strings.HasPrefix(kind, "smallint"):
		return n >= math.MinInt16 && n <= math.MaxInt16
	default:
		return n >= 0 && n <= math.MaxInt8
	}
}

func (db *Database) uuids() []any {
	values := []any{ids[0], ids[1], ids[2]}
	switch db.Dialect {
	case MySQL:
		return append(values, []byte{}, ids[0][:15], append(ids[0][:], 1))
	case SQLite:
		text := ids[0].String()
		return append(values, strings.ToUpper(text), "{"+text+"}", strings.ReplaceAll(text, "-", ""), text[1:], text[:35]+"g", "-"+text[:8]+text[9:], "", []byte{1})
	default:
		return values
	}
}

// longestProbe is how many characters a text of a probe has at most.
const longestProbe = 1 << 17

func (db *Database) texts(constants constants) []any {
	values := []any{"order-1", "", "Order-1", "order-1 "}
	for _, text := range constants.texts {
		for _, text := range []string{text, text + " ", strings.ToUpper(text)} {
			if !slices.Contains(values, any(text)) {
				values = append(values, text)
			}
		}
	}
	if !constants.lengths {
		return values
	}
	for _, n := range constants.numbers {
		if n < 1 || n > longestProbe {
			continue
		}
		values = append(values, repeated{"x", n}, repeated{"x", n + 1})
		if !db.ASCII { // as many bytes as are allowed, or more, in half as many characters
			values = append(values, repeated{"é", n / 2}, repeated{"é", n/2 + 1})
		}
	}
	return values
}

// shardRows are keys and none, with all classes of priorities, and the shards that Go computes for
// them. Further columns have one value.
func (db *Database) shardRows(c *comparison, constants constants) list {
	keys := []any{"order-1", "order-2", "order-3", "order-4", "Order-1", "order-1 ", `C:\temp\101`, `\\x41\`, "it's", repeated{"k", 512}}
	if !db.ASCII {
		keys = append(keys, "Größe", "ключ", "😀", repeated{"é", 256})
	}
	shard := Object{Name: column + goShard, Properties: c.columns["shard"].Properties}
	l := list{columns: []Object{c.columns["ordering_key"], c.columns["message_id"], c.columns["priority"], shard}}
	var further []any
	for _, name := range constants.columns {
		if of := c.columns[name]; !slices.ContainsFunc(l.columns, func(o Object) bool { return o.Name == of.Name }) {
			l.columns = append(l.columns, of)
			further = append(further, db.values(of, constants)[0])
		}
	}
	add := func(key any, id uuid.UUID, priorities ...int) {
		var text string
		switch key := key.(type) {
		case string:
			text = key
		case repeated:
			text = key.text()
		}
		for _, priority := range priorities {
			l.rows = append(l.rows, append([]any{key, id, priority, db.Shard(text, id, priority)}, further...))
		}
	}
	for i, key := range keys {
		add(key, ids[i%len(ids)], 0, 1, -1)
	}
	for _, id := range ids {
		add(nil, id, 0, 1, -1, math.MaxInt32, math.MinInt32)
	}
	return l
}
