package main

import (
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

// The linker ignores a variable that does not exist, or that has a value.
func TestStampedVariables(t *testing.T) {
	t.Parallel()
	sources := map[string]string{"main": "version.go", "github.com/gorm-fanout/fanout": "../../open.go"}
	for _, file := range []string{"Dockerfile", ".goreleaser.yaml"} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		stamps := regexp.MustCompile(`-X (\S+)\.(\w+)=`).FindAllStringSubmatch(string(text), -1)
		assert.GreaterOrEqual(t, len(stamps), 3, file)
		for _, stamp := range stamps {
			source, err := os.ReadFile(sources[stamp[1]])
			require.NoError(t, err, stamp[1])
			assert.Regexp(t, `(?m)^var (\w+, )*`+stamp[2]+`(, \w+)* string( //|$)`, string(source), file)
		}
	}
}
