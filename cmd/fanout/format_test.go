package main

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed testdata/json.golden
var goldens embed.FS

func TestAgedError(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	for want, last := range map[string]*outbox.LastError{
		"1h2m0s ago: retryable: m": {Class: "retryable", Message: "m", At: now.Add(-62*time.Minute - 100*time.Millisecond)},
		"<1s ago: retryable: m":    {Class: "retryable", Message: "m", At: now.Add(time.Second)}, // clocks differ
		"":                         nil,
		"destination unavailable: redisstreams: NOPERM":      {Class: "unavailable", Message: "destination unavailable: redisstreams: NOPERM"},
		"retryable: redisstreams: the broker is unavailable": {Class: "retryable", Message: "redisstreams: the broker is unavailable"},
		"expired: " + strings.Repeat("é", 190) + "…":         {Class: "expired", Message: strings.Repeat("é", 300)},
	} {
		assert.Equal(t, want, agedError(last, now))
	}
}

func TestNumbersAndAges(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		assert.Equal(t, want, thousands(n))
	}
	for d, want := range map[time.Duration]string{
		0: "-", -time.Second: "-", time.Millisecond: "<1s", 90 * time.Second: "1m30s", 47 * time.Hour: "47h0m0s", 48 * time.Hour: "2d", 75*time.Hour + time.Minute: "3d3h",
	} {
		assert.Equal(t, want, age(d))
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 語 …": "plain é 語 …", "a\x1b[2Jb": `a\u001b[2Jb`, "a\nb\tc": `a\nb\u0009c`, "\xffx": `\xffx`, "\u202eabc": `\u202eabc`, "\u009b": `\u009b`, "\uFFFD": "\uFFFD",
	} {
		assert.Equal(t, want, printable(in))
	}
}

// JSON is shown on terminals, too; what it says stays the same.
func TestVisibleJSON(t *testing.T) {
	t.Parallel()
	const odd = "a\u202eb\u009b\U000E0001 é🔑\n\x7f"
	var out, log bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	require.NoError(t, printJSON(cmd, []string{odd}))
	require.NoError(t, printLine(cmd, []string{odd}))
	assert.Equal(t, "[\n  \"a\\u202eb\\u009b\\udb40\\udc01 é🔑\\n\\u007f\"\n]\n[\"a\\u202eb\\u009b\\udb40\\udc01 é🔑\\n\\u007f\"]\n", out.String())
	decoder := json.NewDecoder(&out)
	for range 2 {
		var got []string
		require.NoError(t, decoder.Decode(&got))
		assert.Equal(t, []string{odd}, got)
	}
	for _, asJSON := range []bool{false, true} {
		logger, err := newLogger(cmd, "info", asJSON)
		require.NoError(t, err)
		logger.Info("message abandoned", "error", odd, "message_id\u202e", "x")
		assert.NotContains(t, log.String(), "\u202e")
		assert.Contains(t, log.String(), `a\u202eb`)
		log.Reset()
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "2h": now.Add(-2 * time.Hour), "7d": now.Add(-7 * 24 * time.Hour), "2026-05-01T10:00:00Z": time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC),
	} {
		got, err := parseTime("--since", text, now)
		require.NoError(t, err)
		assert.True(t, want.Equal(got), text)
	}
}

// The JSON is a contract.
func TestGoldenJSON(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	s.badNight()
	s.does("broker", "pause", "partner", "--by", "ada", "--reason", "they move")
	var all bytes.Buffer
	for _, args := range []string{
		"status --json", "messages list --json --broker partner --status failed", "messages list --json --broker default --limit 1", "messages show " + messageID(1) + " --json --payload --by ada",
		"messages failures --json", "messages blocked --json", "messages requeue --error-class permanent --dry-run --json",
		"messages requeue --error-class permanent --json --by ada --reason fixed", "messages unblock order-1 --broker partner --json --by ada", "audit --json", "workers --json",
	} {
		all.WriteString("$ fanout " + args + "\n" + s.does(strings.Fields(args)...))
	}
	got := all.String()
	for pattern, stand := range map[string]string{
		`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`: `"(time)"`, `_seconds": ?[0-9.]+`: `_seconds": 0.5`, `"next":"[^"]+"`: `"next":"(cursor)"`,
	} {
		got = regexp.MustCompile(pattern).ReplaceAllString(got, stand)
	}
	const golden = "testdata/json.golden"
	update, err := strconv.ParseBool(cmp.Or(os.Getenv("FANOUT_UPDATE_GOLDEN"), "false"))
	require.NoError(t, err, "FANOUT_UPDATE_GOLDEN")
	if update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
		return
	}
	want, err := goldens.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "FANOUT_UPDATE_GOLDEN=1 go test -run '^%s$' writes it anew", t.Name())
}

// A shell completes brokers, databases and statuses from the configuration, with no variable set.
func TestCompletion(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	for want, args := range map[string][]string{
		"partner\n:4\n":          {"broker", "pause", "--config", s.config, "p"},
		"default\npartner\n:4\n": {"messages", "list", "--config", s.config, "--broker", ""},
		"main\n:4\n":             {"status", "--config", s.config, "--database", ""},
		"pending\nprocessing\nfailed\npublished\nabandoned\n:4\n": {"messages", "list", "--config", s.config, "--status", "p"},
		"pending\nprocessing\nfailed\nabandoned\n:4\n":            {"messages", "requeue", "--config", s.config, "--status", "a"},
		":4\n": {"broker", "resume", "--config", "none.yaml", ""},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"__complete"}, args...), strings.NewReader(""), &stdout, &stderr)
		assert.Zero(t, code)
		assert.Equal(t, want, stdout.String(), args)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		var stdout, stderr bytes.Buffer
		assert.Zero(t, run(t.Context(), []string{"completion", shell}, strings.NewReader(""), &stdout, &stderr))
		assert.Contains(t, stdout.String(), "__complete")
	}
}
