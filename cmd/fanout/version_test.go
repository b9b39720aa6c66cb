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
		`unknown command "stauts" for "fanout": did you mean "status"? See "fanout --help"`:              {"stauts"},
		`unknown command "lst" for "fanout messages": did you mean "list"? See "fanout messages --help"`: {"messages", "lst"},
		`unknown command "re" for "fanout messages": did you mean "replay" or "requeue"? See`:            {"messages", "re"},
		`unknown flag: --confg: did you mean "--config"? See "fanout status --help"`:                     {"status", "--confg", "f"},
		`unknown shorthand flag: 'q' in -q: see "fanout status --help"`:                                  {"status", "-q"},
		`unknown flag: --verson: did you mean "--version"? See "fanout --help"`:                          {"--verson"},
		`unknown flag: --x` + strings.Repeat("x", 300) + `: see "fanout status --help"`:                  {"status", "--x" + strings.Repeat("x", 300)},
	} {
		code, stdout, stderr := ran(t, args...)
		assert.Equal(t, exitUsage, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, want)
	}
}
