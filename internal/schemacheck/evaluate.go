package schemacheck

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Unevaluated precedes the server's error in a difference that may be none.
const Unevaluated = "it cannot be evaluated: "

// patience is how long a database may take to evaluate all expressions, which takes tens of
// milliseconds.
const patience = 30 * time.Second

// A comparison is an expression that the database has, and the one that it should have.
type comparison struct {
	object, property, kind string // kind is the type of the column whose value it is
	live, want             string
	columns                map[string]Object // of the table

	rows    probes
	differs bool
	why     string // what is known beyond that
}

func (c *comparison) note() string {
	if c == nil || c.why == "" {
		return ""
	}
	return " (" + c.why + ")"
}

// evaluate finds out which expressions differ: all of them in one statement, or else each by itself,
// since one that cannot be evaluated fails the statement.
func (db *Database) evaluate(ctx context.Context, comparisons []*comparison) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var asked []*comparison
	for _, c := range comparisons {
		if name := foreign(db.Dialect, c.live); name != "" {
			c.differs, c.why = true, "it is not evaluated, because it refers to "+name+", which is not the database's own"
			continue
		}
		c.rows = db.probes(c)
		asked = append(asked, c)
	}
	err := db.ask(ctx, asked)
	if err == nil || !db.Refused(err) {
		return err
	}
	for _, c := range asked {
		switch err := db.ask(ctx, []*comparison{c}); {
		case err == nil:
		case db.Refused(err):
			c.differs, c.why = true, Unevaluated+err.Error()
		default:
			return err
		}
	}
	return nil
}

var number = regexp.MustCompile(`^\.?\d[\d.eE]*$`)

// foreign is what an expression names with its schema: a function, a type, an operator or a sequence
// of the owner's. The check runs with the rights of whoever asks for it, and does not call these. The
// database's own need no schema.
func foreign(dialect Dialect, expression string) string {
	tokens := Scan(dialect, expression)
	for i, token := range tokens {
		switch text := token.Text; {
		case strings.HasSuffix(text, "'"), unquoted(token) != text, number.MatchString(text):
		case text == "." || strings.HasPrefix(text, "."):
			return at(tokens, i-1).Text + text + at(tokens, i+1).Text
		case strings.HasSuffix(text, "."):
			return text + at(tokens, i+1).Text
		case strings.ContainsAny(text, ".;"):
			return text
		}
	}
	return ""
}

// ask sends one statement for these comparisons.
func (db *Database) ask(ctx context.Context, comparisons []*comparison) error {
	if len(comparisons) == 0 {
		return nil
	}
	parts := make([]string, len(comparisons))
	for i, c := range comparisons {
		live, want := c.results(db.Dialect)
		parts[i] = fmt.Sprintf(`SELECT %d AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, %s AS fanout_live, %s AS fanout_want
FROM (%s) AS fanout_probe) AS fanout_results
WHERE %s`, i, live, want, c.rows.sql(db.Dialect), differ(db.Dialect, "fanout_live", "fanout_want"))
	}
	answers, err := db.Ask(ctx, strings.Join(parts, "\nUNION ALL\n"))
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if c := comparisons[answer.Expression]; answer.Row >= 0 {
			c.differs, c.why = true, c.rows.describe(answer.Row)
		}
	}
	return nil
}

// results are the two expressions as they are compared.
func (c *comparison) results(dialect Dialect) (live, want string) {
	switch {
	case c.property == CheckExpression: // NULL passes
		return "CASE WHEN NOT (" + c.live + ") THEN 0 ELSE 1 END", "CASE WHEN NOT (" + c.want + ") THEN 0 ELSE 1 END"
	case c.property == Predicate:
		return "CASE WHEN (" + c.live + ") THEN 1 ELSE 0 END", "CASE WHEN (" + c.want + ") THEN 1 ELSE 0 END"
	case c.property == Default && strings.Contains(c.want, "("):
		return clock(dialect, c.live, c.want), "1"
	case c.object == shardColumn && c.property == Generated:
		return compared(dialect, c.live, c.kind), compared(dialect, goShard, c.kind)
	default:
		return compared(dialect, c.live, c.kind), compared(dialect, c.want, c.kind)
	}
}
