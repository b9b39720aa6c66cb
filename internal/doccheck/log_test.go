package doccheck_test

import (
	"cmp"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const logHeading = "| level | message | keys | what to do |"

// line is a log line that needs action.
type line struct{ level, message, keys string }

// Each warning and each error that the source logs is in the table with its keys, and the table has
// no other.
func TestLinesOfTheLog(t *testing.T) {
	t.Parallel()
	var documented []line
	for _, row := range slices.Concat(table(t, "docs/faults.md", logHeading), table(t, "docs/consuming.md", logHeading)) { // relays; consumers
		require.Len(t, row, 4, "%q", row)
		require.NotEmpty(t, row[3], "%s: what to do?", row[1])
		documented = append(documented, line{row[0], strings.Trim(row[1], "`"), strings.Join(spans(row[2]), " ")})
	}
	slices.SortFunc(documented, compare)
	assert.ElementsMatch(t, logged(t), slices.Compact(documented)) // a broker is out for relays and for consumers
}

func compare(a, b line) int {
	return cmp.Or(strings.Compare(a.message, b.message), strings.Compare(a.level, b.level), strings.Compare(a.keys, b.keys))
}

// logged are the warnings and errors of the source.
func logged(t *testing.T) (lines []line) {
	t.Helper()
	for path, file := range source(t) {
		if unlogged.MatchString(path) && !ofWriters.MatchString(path) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if found, ok := lineOf(call); ok {
					lines = append(lines, found)
				}
			}
			return true
		})
	}
	slices.SortFunc(lines, compare)
	return slices.Compact(lines)
}

// unlogged are folders of which no line reaches an operator's log.
var unlogged = regexp.MustCompile(`(^|/)(internal|benchmarks|integration|examples|storetest|brokertest|consumertest)/`)

// ofWriters are folders among them whose lines writers and relays log.
var ofWriters = regexp.MustCompile(`^(\./)?internal/(wakeup|unsetid|tenants)/`)

// lineOf reads a call of a logger's method.
func lineOf(call *ast.CallExpr) (l line, ok bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isLogger(method.X) {
		return l, false
	}
	args := call.Args
	if strings.HasSuffix(method.Sel.Name, "Context") {
		args = args[1:]
	}
	switch strings.TrimSuffix(method.Sel.Name, "Context") {
	case "Warn":
		l.level = "warning"
	case "Error":
		l.level = "error"
	default:
		return l, false
	}
	l.message, ok = literal(args[0])
	var keys []string
	for i := 1; i < len(args); i++ {
		key, isText := literal(args[i])
		if attr, isCall := args[i].(*ast.CallExpr); isCall { // slog.String(key, value)
			key, isText = literal(attr.Args[0])
		} else { // key, value
			i++
		}
		ok = ok && isText
		keys = append(keys, key)
	}
	l.keys = strings.Join(keys, " ")
	return l, ok
}

// isLogger tells by the name, which the whole source follows.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "log")
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "log")
	default:
		return false
	}
}

// literal is the value of a text that stands in the source, perhaps in pieces.
func literal(x ast.Expr) (text string, ok bool) {
	switch x := x.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, ok1 := literal(x.X)
		right, ok2 := literal(x.Y)
		return left + right, ok1 && ok2 && x.Op == token.ADD
	default:
		return "", false
	}
}
