package main

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
)

// ran runs a command line that needs no configuration.
func ran(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, text, _ := ran(t, "version")
	require.Zero(t, code)
	first, rest, _ := strings.Cut(text, "\n")
	code, short, _ := ran(t, "--version")
	require.Zero(t, code)
	assert.Equal(t, first+"\n", short, "both say the same")
	for _, name := range append(clients.Names(), "postgres", "mysql", "sqlite", "sqlserver", "go1.") {
		assert.Contains(t, rest, name)
	}

	code, said, _ := ran(t, "version", "--json")
	require.Zero(t, code)
	var b build
	require.NoError(t, json.Unmarshal([]byte(said), &b))
	assert.Equal(t, thisBuild(), b)
	assert.Equal(t, first, "fanout "+b.Version)
}

// What the linker was told counts; the build information has the rest.
func TestVersionOfABuild(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		Main:     debug.Module{Version: "v0.3.1-0.20261127-abc"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	}
	b := buildOf(info, "", "")
	assert.Equal(t, []any{"v0.3.1-0.20261127-abc", "abc", true}, []any{b.Version, b.Commit, b.Modified})
	assert.Contains(t, b.String(), "fanout v0.3.1-0.20261127-abc\ncommit     abc, with changes\n")

	b = buildOf(info, "v0.4.0", "def")
	assert.Equal(t, []any{"v0.4.0", "def", false}, []any{b.Version, b.Commit, b.Modified})
	assert.Contains(t, b.String(), "fanout v0.4.0\ncommit     def\n")

	b = buildOf(new(debug.BuildInfo), "", "")
	assert.Equal(t, []any{"(unknown)", ""}, []any{b.Version, b.Commit})
	assert.NotContains(t, b.String(), "commit")
}

func TestMistypedNames(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`unknown command "stauts" for "fanout": did you mean "status"? See "fanout --help"`:                     {"stauts"},
		`unknown command "lst" for "fanout messages": did you mean "list"? See "fanout messages --help"`:        {"messages", "lst"},
		`unknown command "re" for "fanout messages": did you mean "replay" or "requeue"? See`:                   {"messages", "re"},
		`unknown command "deploy" for "fanout": see "fanout --help"`:                                            {"deploy"},
		`unknown flag: --confg: did you mean "--config"? See "fanout status --help"`:                            {"status", "--confg", "f"},
		`unknown flag: --stric: did you mean "--strict"? See "fanout validate --help"`:                          {"validate", "--stric"},
		`unknown flag: --everything: see "fanout status --help"`:                                                {"status", "--everything"},
		`unknown shorthand flag: 'q' in -q: see "fanout status --help"`:                                         {"status", "-q"},
		`unknown argument "main" for "fanout status": see "fanout status --help"`:                               {"status", "main"},
		`unknown flag: --verson: did you mean "--version"? See "fanout --help"`:                                 {"--verson"},
		`unknown command "completon" for "fanout": did you mean "completion"? See "fanout --help"`:              {"completon"},
		`unknown flag: --x` + strings.Repeat("x", 300) + `: see "fanout status --help"`:                         {"status", "--x" + strings.Repeat("x", 300)},
		`unknown flag: --databse: did you mean "--database"? See "fanout messages list --help"`:                 {"messages", "list", "--databse", "x"},
		`invalid argument "often" for "--limit" flag: strconv.ParseInt: parsing "often": invalid syntax` + "\n": {"messages", "list", "--limit", "often"},
	} {
		code, stdout, stderr := ran(t, args...)
		assert.Equal(t, exitUsage, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, want)
	}
}

// Every command has its place in the help.
func TestHelpIsInGroups(t *testing.T) {
	t.Parallel()
	code, help, _ := ran(t, "--help")
	require.Zero(t, code)
	assert.NotContains(t, help, "Additional Commands")
	place := -1
	for _, title := range []string{"\nSet up:\n", "\nDeliver:\n", "\nLook:\n", "\nLook and act:\n", "\nOther:\n"} {
		next := strings.Index(help, title)
		assert.Greater(t, next, place, title)
		place = next
	}
	for _, cmd := range rootCommand().Commands() {
		assert.NotEmpty(t, cmd.GroupID, cmd.Name())
		assert.Contains(t, help, "\n  "+cmd.Name()+" ")
	}
}
