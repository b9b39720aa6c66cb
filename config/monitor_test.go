package config_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

func TestMonitor(t *testing.T) {
	t.Parallel()
	assert.Equal(t, config.Monitor{Metrics: true}, parse(t, minimal, env()).Monitor)
	cfg := parse(t, minimal+"monitor: {listen: ':8088', metrics: false, operator_tokens: {ann: '${T}'}}\n", env("T", "0123456789abcdef"))
	assert.Equal(t, config.Monitor{Listen: ":8088", OperatorTokens: map[string]config.Secret{"ann": "0123456789abcdef"}}, cfg.Monitor)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", cfg.Monitor, cfg.Monitor, cfg.Monitor), "0123456789abcdef")
	for _, listen := range []string{"127.0.0.1:1", "127.8.0.1:1", "'[::1]:1'", "localhost:1", "'[::ffff:127.0.0.1]:1'"} {
		parse(t, minimal+"monitor: {listen: "+listen+"}\n", env())
	}
	assert.Contains(t, fmt.Sprint(parse(t, minimal+"monitor: {listen: '127.0.0.1:0'}\n", env()).Warnings), "monitor.listen: port 0 is any free one")
}

func TestMonitorProblems(t *testing.T) {
	t.Parallel()
	const a, b = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
	for section, want := range map[string]string{
		"{listen: '0.0.0.0:8088'}":                                         "without tokens anyone may look",
		"{listen: ':8088'}":                                                "monitor.viewer_tokens or monitor.operator_tokens",
		"{listen: 'relay.internal:8088'}":                                  "others can reach this address",
		"{listen: '[::]:8088'}":                                            "others can reach this address",
		"{listen: '127.0.0.1'}":                                            "no address to listen on",
		"{listen: '127.0.0.1:99999'}":                                      "no address to listen on",
		"{listen: 'localhost:http'}":                                       "no address to listen on",
		"{viewer_tokens: {a: short}}":                                      "monitor.viewer_tokens.a: is shorter than 16",
		"{viewer_tokens: {'a b': " + a + "}}":                              "name \"a b\"",
		"{viewer_tokens: [a]}":                                             "must be a mapping",
		"{viewer_tokens: {a: " + a + ", b: " + a + "}}":                    "is the same token as monitor.viewer_tokens.a",
		"{viewer_tokens: {a: '" + a + "', A: '" + b + "'}}":                "has the name of monitor.viewer_tokens.a",
		"{viewer_tokens: {a: " + a + "}, operator_tokens: {a: " + b + "}}": "has the name of monitor.viewer_tokens.a",
		"{operator_tokens: {a: 1234567890123456}}":                         "is a number",
		"{lisen: x}": "did you mean \"listen\"",
	} {
		_, err := parsed([]byte(minimal+"monitor: "+section+"\n"), "f", env())
		require.Error(t, err, section)
		require.ErrorContains(t, err, want, section)
		assert.NotContains(t, err.Error(), a)
	}
}
