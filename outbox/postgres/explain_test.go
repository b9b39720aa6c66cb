package postgres

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
)

// planNode is one node of a plan, as EXPLAIN (FORMAT JSON) prints it.
type planNode struct {
	Type       string  `json:"Node Type"`
	Role       string  `json:"Parent Relationship"`
	Relation   string  `json:"Relation Name"`
	Index      string  `json:"Index Name"`
	CTE        string  `json:"CTE Name"`
	Rows       float64 `json:"Actual Rows"`
	Loops      float64 `json:"Actual Loops"`
	Filtered   float64 `json:"Rows Removed by Filter"`
	Rechecked  float64 `json:"Rows Removed by Index Recheck"`
	HeapReads  float64 `json:"Heap Fetches"`
	WALRecords int     `json:"WAL Records"`
	WALImages  int     `json:"WAL FPI"`
	WALBytes   int     `json:"WAL Bytes"`
	Plans      []planNode
	Cost       float64 `json:"Total Cost"`
}

// walk calls f for a node and all below it.
func (n *planNode) walk(f func(*planNode)) {
	f(n)
	for i := range n.Plans {
		n.Plans[i].walk(f)
	}
}

// indexes lists the indexes that a plan reads, sorted.
func (n *planNode) indexes() []string {
	var names []string
	n.walk(func(n *planNode) {
		if n.Index != "" {
			names = append(names, n.Index)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// read is how many rows of a table a plan has read, thrown away ones included.
func (n *planNode) read(table string) int {
	var rows float64
	n.walk(func(n *planNode) {
		if n.Relation == table && strings.HasSuffix(n.Type, "Scan") {
			rows += (n.Rows + n.Filtered + n.Rechecked) * n.Loops
		}
	})
	return int(rows)
}

// whole lists the nodes that read a table from end to end.
func (n *planNode) whole() []string {
	var tables []string
	n.walk(func(n *planNode) {
		if n.Type == "Seq Scan" {
			tables = append(tables, n.Relation)
		}
	})
	return tables
}

// quadratic reports whether a plan goes through one list for each entry of another: the inner side
// of a nested loop has no index. A summary is one row, whatever was summed up.
func (n *planNode) quadratic() bool {
	found := false
	n.walk(func(n *planNode) {
		if at := slices.IndexFunc(n.Plans, func(n planNode) bool { return n.Role == "Inner" }); n.Type == "Nested Loop" && at >= 0 {
			if slices.ContainsFunc(n.Plans, func(n planNode) bool { return n.Role == "Outer" && n.CTE == "summary" }) {
				return
			}
			inner := n.Plans[at]
			for (inner.Type == "Materialize" || inner.Type == "Memoize") && len(inner.Plans) > 0 {
				inner = inner.Plans[0]
			}
			found = found || slices.Contains([]string{"CTE Scan", "Seq Scan", "Function Scan", "Subquery Scan"}, inner.Type)
		}
	})
	return found
}

// explainAnalyze executes a statement within the transaction in progress and takes back what it did.
// Its arguments are SQL literals, so that the plan does not depend on a driver.
func explainAnalyze(t *testing.T, conn *pgx.Conn, text, args, settings string) *planNode {
	t.Helper()
	exec(t, conn, "PREPARE planned AS "+text)
	defer exec(t, conn, "DEALLOCATE planned")
	exec(t, conn, "SAVEPOINT explained")
	defer exec(t, conn, "ROLLBACK TO explained")
	if settings != "" {
		exec(t, conn, textOf(t, settings, "t"))
	}
	return explainExecute(t, conn, args)
}

// textOf is a statement of the administration or of the store.
func textOf(t *testing.T, name, table string) string {
	t.Helper()
	if text := administrationOf(t, table).Text(name); text != "" {
		return text
	}
	return readSQL(name, table)
}

// administrations keeps those of tables: TestPlans asks for their texts a thousand times.
var administrations sync.Map

func administrationOf(t *testing.T, table string) *sqladmin.Admin {
	t.Helper()
	if a, ok := administrations.Load(table); ok {
		return a.(*sqladmin.Admin)
	}
	a, err := sqladmin.New(database{}, sqladmin.Postgres, table)
	require.NoError(t, err)
	administrations.Store(table, a)
	return a
}

// literalsOf are SQL literals in the order in which a statement has its parameters. Those of the
// administration are told by name: "broker 'b'; limit 10".
func literalsOf(t *testing.T, name, literals string) string {
	t.Helper()
	_, all := administrationOf(t, "t").Texts()
	parameters, ok := all[name]
	if !ok {
		return literals
	}
	var ordered []string
	for _, parameter := range parameters {
		values := strings.Split("; "+literals, "; "+parameter+" ")
		require.Len(t, values, 2, "%s: @%s in %q", name, parameter, literals)
		value, _, _ := strings.Cut(values[1], "; ")
		ordered = append(ordered, value)
	}
	return strings.Join(ordered, ", ")
}

// explainExecute executes the prepared statement "planned".
func explainExecute(t *testing.T, conn *pgx.Conn, args string) *planNode {
	t.Helper()
	if args != "" {
		args = "(" + args + ")"
	}
	var text string
	require.NoError(t, conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, WAL, TIMING OFF, FORMAT JSON) EXECUTE planned"+args,
		pgx.QueryExecModeSimpleProtocol).Scan(&text))
	var plans []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	require.Len(t, plans, 1)
	return &plans[0].Plan
}

// repeated is an array literal.
func repeated(value string, n int) string {
	return "ARRAY[" + strings.TrimSuffix(strings.Repeat(value+", ", n), ", ") + "]"
}

// explainOnly is the text of a plan, without costs.
func explainOnly(t *testing.T, conn *pgx.Conn, text, args string) string {
	t.Helper()
	exec(t, conn, "PREPARE asked AS "+text)
	defer exec(t, conn, "DEALLOCATE asked")
	rows, err := conn.Query(t.Context(), "EXPLAIN (COSTS OFF) EXECUTE asked("+args+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}
