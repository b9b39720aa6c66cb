package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

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

// The names of the fields are a contract: scripts read them. Fields may be added.
func TestFieldsOfTheJSON(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	s.badNight()
	s.does("broker", "pause", "partner", "--by", "ada", "--reason", "they move")
	for args, fields := range map[string]string{
		"status --json": "status counts abandoned relays silent_relays brokers capped deferred blocked_keys held scheduled unacknowledged " +
			"oldest_pending_seconds lag_seconds retry_rate published_per_second paused since by reason last_error class message at attempt " +
			"last_published unknown unavailable unavailable_destinations",
		"messages list --json --broker partner --status failed": "database id message_id broker status state stream type key shard priority " +
			"content_type attempts crashes created_at locked_until payload_bytes last_error",
		"messages list --json --broker default --limit 1":                   "next published_at finished_at broker_message_id",
		"messages show " + messageID(1) + " --json --payload":               "headers payload_text",
		"messages failures --json":                                          "database fingerprint broker class message count by_status types first_at last_at keys sample",
		"messages blocked --json":                                           "broker key message_id status reason since followers blocked rows",
		"messages requeue --error-class permanent --json --reason repaired": "database matched changed audit_id",
		"audit --json": "id actor via action broker filter reason rows started_at ended_at",
	} {
		said := s.does(strings.Fields(args)...)
		for field := range strings.FieldsSeq(fields) {
			assert.Regexp(t, `"`+field+`": ?`, said, args)
		}
	}
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
}
