package doccheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each instrument that the source makes has a row, and the tables have no other. (Their units and
// kinds are compared by the tests of those packages, which see the instruments at work.)
func TestInstruments(t *testing.T) {
	t.Parallel()
	for dir, heading := range map[string]string{
		"telemetry/otelrelay": "| instrument | unit | kind | what it tells | what to do |",
		"telemetry/otelinbox": "| instrument | unit | kind | what it tells of a consumer | what to do |",
	} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			var documented []string
			for _, row := range table(t, "docs/metrics.md", heading) {
				require.Len(t, row, 5, "%q", row)
				assert.NotEmpty(t, row[3], "%s: what does it tell?", row[0])
				documented = append(documented, strings.Trim(row[0], "`"))
			}
			assert.ElementsMatch(t, instruments(t, dir), documented)
		})
	}
}

// Attributes have names of their own.
var instrumentForm = regexp.MustCompile(`^(fanout\.(outbox|inbox)|messaging\.(client|process))\.`)

// instruments are the names that a package makes instruments of: first arguments of a call.
func instruments(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(root + dir + "/*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 1 {
				if name, ok := literal(call.Args[0]); ok && instrumentForm.MatchString(name) {
					names = append(names, name)
				}
			}
			return true
		})
	}
	require.NotEmpty(t, names, "%s makes no instruments", dir)
	return names
}
