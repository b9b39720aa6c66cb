package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

// FuzzParse: whatever the file says, Parse returns either a configuration that the other packages
// accept or an error whose lines exist; and no text of it shows what is in the environment.
func FuzzParse(f *testing.F) {
	f.Add(config.Reference())
	f.Add(minimal)
	f.Add(overriding)
	f.Add("outbox:\n\tlease: 5m\n")
	f.Add("a: &a [*a, !x {b: *a}]\n--- |x\n ${X}\n...\n")
	f.Add("brokers: {default: &b {type: strange, url: '${X}', options: &o {a: *o, ? b : [c, ~, .nan, 0x1, 1e3, true, \"\\n\"]}}, b: *b}")
	f.Add("outbox: {table: '${X}', lease: '${X}', workers: ${X:-5}, external_brokers: ['${X}']}\n${X}: '${X'\n")
	f.Add("? {a: b}\n: - c\n  - - d\n<<: [*x]\n%YAML 1.2\n---\n>-\n  folded\n\r\n'x':\n")
	f.Fuzz(func(t *testing.T, source string) {
		if strings.Contains(source, hunter) {
			t.Skip("the secret is in the file itself")
		}
		everySet := config.WithEnv(func(string) (string, bool) { return hunter, true })
		cfg, err := parsed([]byte(source), "f", everySet)
		if err != nil {
			assert.Nil(t, cfg)
			assert.NotContains(t, err.Error(), hunter)
			var report *config.Error
			require.ErrorAs(t, err, &report)
			require.NotEmpty(t, report.Problems)
			checkProblems(t, source, report.Problems)
			return
		}
		checkProblems(t, source, cfg.Warnings)
		require.NoError(t, cfg.Routing().Validate())
		for _, name := range cfg.BrokerNames() {
			require.NoError(t, cfg.Policy(name).Validate())
			require.Contains(t, cfg.Brokers, name)
		}
		for _, broker := range cfg.Brokers {
			assert.NotContains(t, fmt.Sprintf("%v %+v %#v", broker.Settings, broker, broker), hunter)
		}
	})
}

func checkProblems(t *testing.T, source string, problems []config.Problem) {
	t.Helper()
	lines := 1 + strings.Count(source, "\n")
	last := 0
	for _, problem := range problems {
		assert.NotContains(t, problem.String(), hunter)
		assert.NotContains(t, problem.String(), "\n")
		assert.GreaterOrEqual(t, problem.Line, max(1, last))
		assert.LessOrEqual(t, problem.Line, lines)
		assert.GreaterOrEqual(t, problem.Column, 1)
		assert.NotEmpty(t, problem.Message)
		last = problem.Line
	}
}
