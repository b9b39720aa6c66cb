package doccheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
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

// suites are the conformance suites, whose subtests any package's tests may run.
var suites = []string{"internal/store/storetest/*.go", "brokers/brokertest/*.go", "inbox/consumertest/*.go"}

// contents returns the test functions of a package, and the texts that may name their subtests: its own, and
// those of the suites.
func contents(t *testing.T, dir string) (funcs, texts map[string]bool) {
	t.Helper()
	funcs, texts = map[string]bool{}, map[string]bool{}
	for _, pattern := range append([]string{dir + "/*_test.go"}, suites...) {
		files, err := filepath.Glob(root + pattern)
		require.NoError(t, err)
		for _, file := range files {
			read := parse(t, file)
			maps.Copy(texts, read.texts)
			if strings.HasPrefix(pattern, dir+"/") {
				maps.Copy(funcs, read.tests)
			}
		}
	}
	require.NotEmpty(t, funcs, "%s has no tests", dir)
	return funcs, texts
}

// names are the test functions of a file, and its texts.
type names struct{ tests, texts map[string]bool }

// parsed keeps each file's names: every command looks through the suites.
var parsed = map[string]names{}

func parse(t *testing.T, file string) names {
	t.Helper()
	if known, ok := parsed[file]; ok {
		return known
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := names{map[string]bool{}, map[string]bool{}}
	for _, declaration := range tree.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
			found.tests[f.Name.Name] = true
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found.texts[text] = true
			}
		}
		return true
	})
	parsed[file] = found
	return found
}
