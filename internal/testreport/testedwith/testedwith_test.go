package testedwith

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	t.Parallel()
	servers, err := Collect(strings.NewReader(`{"server":"PostgreSQL 15.18","package":"inbox","passed":3,"skipped":1}
{"server":"PostgreSQL 15.18","package":"inbox","passed":1,"failed":1}
{"server":"PostgreSQL 15.18","package":"gormplugin","passed":5}
{"server":"","package":"uow","passed":7}
{"server":"PostgreSQL 9.6","package":"inbox","passed":1}
{"server":"SQL Server","package":"inbox","skipped":4}
`))
	require.NoError(t, err)
	table := (&Result{Date: "2026-01-02", Machine: "go1.25 on plan9", Servers: servers}).Table()
	require.Equal(t, []string{
		"| server | passed | failed | skipped | packages |",
		"|---|---|---|---|---|",
		"| PostgreSQL 9.6 | 1 | 0 | 0 | inbox |",
		"| PostgreSQL 15.18 | 9 | 1 | 1 | gormplugin, inbox |",
		"| SQL Server: **not run** | 0 | 0 | 4 | inbox |",
		"| no server of its own: SQLite, fakes and servers in the process of the tests | 7 | 0 | 0 | uow |",
	}, strings.Split(table, "\n")[:6])
	require.Contains(t, table, "2026-01-02, go1.25 on plan9")

	_, err = Collect(strings.NewReader("nonsense\n"))
	require.Error(t, err)
}

func TestSplice(t *testing.T) {
	t.Parallel()
	document := []byte("# Title\n\n" + begin + "old\n" + end + "\nrest\n")
	got, err := Splice(document, "| new |\n")
	require.NoError(t, err)
	require.Equal(t, "# Title\n\n"+begin+"| new |\n"+end+"\nrest\n", string(got))
	for _, wrong := range []string{"", begin, end + begin} {
		_, err := Splice([]byte(wrong), "")
		require.Error(t, err, wrong)
	}
}
