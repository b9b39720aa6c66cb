package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dockerfile reads the Dockerfile as BuildKit does, with its linter.
func dockerfile(t *testing.T) []instructions.Stage {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	parsed, err := parser.Parse(bytes.NewReader(text))
	require.NoError(t, err)
	require.Empty(t, parsed.Warnings)
	stages, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{Warn: func(rule, description, _, message string, _ []parser.Range) {
		assert.Fail(t, rule+": "+message, description)
	}}))
	require.NoError(t, err)
	return stages
}

func TestImage(t *testing.T) {
	t.Parallel()
	stages := dockerfile(t)
	require.Len(t, stages, 2)
	last := stages[1]
	assert.Regexp(t, `^gcr\.io/distroless/static-debian\d+:nonroot$`, last.BaseName)
	commands := map[string]instructions.Command{}
	for _, command := range last.Commands {
		commands[strings.ToLower(command.Name())] = command
	}
	assert.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, commands["user"].(*instructions.UserCommand).User, "by number, and not root")
	entry := commands["entrypoint"].(*instructions.EntrypointCommand)
	assert.False(t, entry.PrependShell, "there is no shell")
	assert.False(t, commands["cmd"].(*instructions.CmdCommand).PrependShell, "there is no shell")
	assert.Equal(t, []string{"/usr/local/bin/fanout"}, entry.CmdLine)
	for _, command := range last.Commands {
		_, runs := command.(*instructions.RunCommand)
		assert.False(t, runs, "there is nothing that could run: %s", command)
	}
}

// What .dockerignore keeps out of the context is nothing that the command is built of: its packages,
// what they embed, and the go.mod of each module of the workspace.
func TestContextOfTheImage(t *testing.T) {
	t.Parallel()
	file, err := os.Open("../.dockerignore")
	require.NoError(t, err)
	defer file.Close()
	patterns, err := ignorefile.ReadAll(file)
	require.NoError(t, err)
	ignored, err := patternmatcher.New(patterns)
	require.NoError(t, err)

	root, err := filepath.Abs("..")
	require.NoError(t, err)
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`, "./cmd/fanout")
	list.Dir, list.Env, list.Stderr = root, append(os.Environ(), "GOWORK="), os.Stderr
	built, err := list.Output()
	require.NoError(t, err)
	list = exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}/go.mod\n{{.Dir}}/go.sum")
	list.Dir, list.Env, list.Stderr = root, append(os.Environ(), "GOWORK="), os.Stderr
	modules, err := list.Output()
	require.NoError(t, err)
	needed := strings.Fields(string(built) + string(modules))
	needed = append(needed, root+"/go.work", root+"/go.work.sum", root+"/LICENSE")
	assert.Greater(t, len(needed), 300)
	for _, path := range needed {
		path, err := filepath.Rel(root, path)
		require.NoError(t, err)
		missing, err := ignored.MatchesOrParentMatches(path)
		require.NoError(t, err)
		assert.False(t, missing, "%s is not in the context of the image", path)
	}
	for _, path := range []string{".git/config", "docs/operations.md", "deploy/grafana/fanout.json", "config/config_test.go"} {
		unneeded, err := ignored.MatchesOrParentMatches(path)
		require.NoError(t, err)
		assert.True(t, unneeded, "%s is in the context of the image", path)
	}
}
