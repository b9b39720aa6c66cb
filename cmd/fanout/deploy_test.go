package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// commandLine is a line of what is installed that runs the command, as YAML, JSON and systemd have it.
var commandLine = regexp.MustCompile(`(?m)^ *(?:(?:args|command|CMD):? \[(.*)\]|ExecStart=\S*/fanout (.*))$`)

// What is installed runs commands and flags that there are.
func TestInstalledCommandLines(t *testing.T) {
	t.Parallel()
	for file, count := range map[string]int{
		"Dockerfile": 1, "deploy/compose/compose.yaml": 3, "deploy/kubernetes/base/relay.yaml": 1, "deploy/kubernetes/base/migrate.yaml": 1,
		"deploy/systemd/fanout-relay.service": 1,
	} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		lines := commandLine.FindAllStringSubmatch(string(text), -1)
		assert.Len(t, lines, count, file)
		for _, line := range lines {
			args := strings.FieldsFunc(line[1]+line[2], func(r rune) bool { return strings.ContainsRune(`, "`, r) })
			if args[0] == "redis-server" {
				continue
			}
			root := rootCommand()
			cmd, rest, err := root.Find(args)
			require.NoError(t, err, line)
			assert.NotEqual(t, root, cmd, line)
			require.NoError(t, cmd.ParseFlags(rest), line)
			require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), line)
			assert.Equal(t, "/etc/fanout/fanout.yaml", cmd.Flag("config").Value.String(), line)
		}
	}
}

// The variables that the linker sets are there: of one that is not, it says nothing.
func TestStampedVariables(t *testing.T) {
	t.Parallel()
	directories := map[string]string{"main": ".", "github.com/gorm-fanout/fanout": "../.."}
	for _, file := range []string{"Dockerfile", ".goreleaser.yaml"} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		stamps := regexp.MustCompile(`-X (\S+)\.(\w+)=`).FindAllStringSubmatch(string(text), -1)
		assert.GreaterOrEqual(t, len(stamps), 3, file)
		for _, stamp := range stamps {
			assert.True(t, declares(t, directories[stamp[1]], stamp[2]), "%s: there is no variable %s.%s without a value", file, stamp[1], stamp[2])
		}
	}
	assert.False(t, declares(t, ".", "nothing"))
}

// declares reports whether a package has a text of this name that has no value yet.
func declares(t *testing.T, directory, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			variables, ok := declaration.(*ast.GenDecl)
			if !ok || variables.Tok != token.VAR {
				continue
			}
			for _, spec := range variables.Specs {
				value := spec.(*ast.ValueSpec)
				kind, _ := value.Type.(*ast.Ident)
				for _, declared := range value.Names {
					if declared.Name == name && kind != nil && kind.Name == "string" && len(value.Values) == 0 {
						return true
					}
				}
			}
		}
	}
	return false
}
