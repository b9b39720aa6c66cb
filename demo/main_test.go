package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDemoCommand(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitDone, command(t.Context(), []string{"--orders", "2", "--json", "--listen", "127.0.0.1:0"}, nil, &stdout, &stderr), &stderr)
	var result struct {
		Orders, Lost, Kills int
		Projection          struct {
			Expected, Actual map[string]map[string]int64
			Agree            bool
		}
		DuplicatesDropped *int `json:"duplicates_dropped"`
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &result), "one object and nothing else")
	assert.Equal(t, 2, result.Orders)
	assert.Zero(t, result.Lost)
	assert.Equal(t, 3, result.Kills)
	assert.True(t, result.Projection.Agree)
	assert.Equal(t, map[string]int64{"orders_placed": 2, "revenue_cents": 3 * 4990, "orders_shipped": 1, "stock_reserved": 3}, result.Projection.Expected["warehouse"])
	assert.Equal(t, result.Projection.Expected, result.Projection.Actual)
	assert.NotNil(t, result.DuplicatesDropped)
	assert.Regexp(t, `^dashboard: http://127\.0\.0\.1:\d+/\n$`, stderr.String())
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--listen 0.0.0.0:8088": `--listen: the dashboard does not listen on "0.0.0.0:8088"`,
		"--orders 0":            "--orders: place at least one",
		"--orders=many":         "-orders",
		"--nonsense":            "-nonsense",
		"extra":                 `unknown argument "extra"`,
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, command(t.Context(), strings.Fields(args), nil, &stdout, &stderr), args)
		assert.Contains(t, stderr.String(), want)
		assert.Empty(t, stdout.String())
	}
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitDone, command(t.Context(), []string{"--help"}, nil, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "-no-open")
	assert.Empty(t, stderr.String())
}

func TestBrowser(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ system, variable, want string }{
		{"windows", "", "rundll32"},
		{"darwin", "", "open"},
		{"linux", "DISPLAY", "xdg-open"},
		{"freebsd", "WAYLAND_DISPLAY", "xdg-open"},
		{"linux", "", ""}, // over SSH, say
	} {
		name, args := browser(c.system, func(variable string) string {
			if variable == c.variable {
				return ":0"
			}
			return ""
		}, "http://127.0.0.1:8088/")
		assert.Equal(t, c.want, name, c.system)
		if name != "" {
			assert.Equal(t, "http://127.0.0.1:8088/", args[len(args)-1], c.system)
		}
	}
}
