package doccheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const faultsHeading = "| # | fault | what happens | what the operator sees | test |"

// Each fault has a test, and each test that a row names exists, down to its subtests.
func TestFaultsAreTested(t *testing.T) {
	t.Parallel()
	for _, row := range table(t, "docs/faults.md", faultsHeading) {
		require.Len(t, row, 5, "%q", row)
		commands := spans(row[4])
		assert.NotEmpty(t, commands, "fault %s: a test", row[0])
		for _, command := range commands {
			checkCommand(t, row[0], command)
		}
	}
}

var commandForm = regexp.MustCompile(`^go test \./(\S+) -(?:run|fuzz) '?([^' ]+)'?$`)

// checkCommand finds what a command would run.
func checkCommand(t *testing.T, fault, command string) {
	t.Helper()
	parts := commandForm.FindStringSubmatch(command)
	if !assert.NotNil(t, parts, "fault %s: %q is not of the form: go test ./package -run Pattern", fault, command) {
		return
	}
	funcs, texts := contents(t, parts[1])
	for alternative := range strings.SplitSeq(parts[2], "|") {
		levels := strings.Split(alternative, "/")
		pattern, err := regexp.Compile(levels[0])
		require.NoError(t, err, command)
		matched := false
		for name := range funcs {
			matched = matched || pattern.MatchString(name)
		}
		assert.True(t, matched, "fault %s: %s: no test %q", fault, command, levels[0])
		for _, level := range levels[1:] {
			if level != ".*" {
				assert.True(t, texts[strings.ReplaceAll(level, "_", " ")] || texts[level], "fault %s: %s: no subtest %q", fault, command, level)
			}
		}
	}
}

// contents are the test functions of a package, and all texts that may be names of subtests: its
// own, and those of the suites.
func contents(t *testing.T, dir string) (funcs, texts map[string]bool) {
	t.Helper()
	funcs, texts = map[string]bool{}, map[string]bool{}
	for _, pattern := range []string{dir + "/*_test.go", "internal/store/storetest/*.go", "brokers/brokertest/*.go", "inbox/consumertest/*.go"} {
		files, err := filepath.Glob(root + pattern)
		require.NoError(t, err)
		for _, file := range files {
			parsed := parse(t, file)
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if strings.HasSuffix(file, "_test.go") && filepath.Dir(file) == filepath.Clean(root+dir) && n.Recv == nil {
						funcs[n.Name.Name] = strings.HasPrefix(n.Name.Name, "Test") || strings.HasPrefix(n.Name.Name, "Fuzz")
					}
				case *ast.BasicLit:
					if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
						texts[text] = true
					}
				}
				return true
			})
		}
	}
	for name, isTest := range funcs {
		if !isTest {
			delete(funcs, name)
		}
	}
	require.NotEmpty(t, funcs, "%s has no tests", dir)
	return funcs, texts
}

// parsed are the files that were parsed before: the suites are looked through for each command.
var parsed = map[string]*ast.File{}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	if parsed[file] == nil {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed[file] = tree
	}
	return parsed[file]
}
