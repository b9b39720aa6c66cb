package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

const (
	deferredRows = 1500
	deferredHead = 5000 // number of the message that blocks the key
	freeRow      = 5001 // number of a message that nothing blocks
)

// deferMany writes a message that fails, rows of its key that are deferred behind it, and a row of
// another key.
func (s *shop) deferMany() {
	s.Helper()
	s.write(deferredHead, "Ordering.OrderPlaced.v1", "stuck", "partner")
	s.complete("partner", func(string) *outbox.LastError {
		return &outbox.LastError{Class: "retryable", Message: "deadline exceeded"}
	})
	rows := make([]outbox.Row, 0, deferredRows)
	for n := 1; n <= deferredRows; n++ {
		eventType := "Ordering.OrderPlaced.v1"
		if n%500 == 0 {
			eventType = "Ordering.OrderPaid.v1"
		}
		rows = append(rows, message(n, eventType, "stuck", "partner"))
	}
	s.insert(rows...)
	s.write(freeRow, "Ordering.OrderPlaced.v1", "free", "partner")
	nothing := func(string) *outbox.LastError { return &outbox.LastError{Class: "not_sent"} }
	s.relays("partner", &scripted{outcome: nothing}, func() bool {
		return s.count(map[bool]string{true: "deferred", false: "deferred = 1"}[s.driver == outbox.Postgres]) == deferredRows+1
	})
}

// Rows behind a key that fails are pending in the status, so they are listed, page by page and
// under every filter; each tells for which message it waits, and until when.
func TestListDeferredRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.deferMany()
		list := func(args ...string) (records []api.Record, next string) {
			t.Helper()
			stdout := s.does(append([]string{"messages", "list", "--json"}, args...)...)
			for line := range strings.Lines(stdout) {
				if r := lines[api.Record](t, line)[0]; r.MessageID != "" {
					records = append(records, r)
					continue
				}
				next = lines[map[string]string](t, line)[0]["next"]
			}
			return records, next
		}
		all, next := list("--status", "pending", "--limit", "2000")
		assert.Empty(t, next)
		require.Len(t, all, deferredRows+1, "as many as \"fanout status\" counts")
		assert.Equal(t, messageID(freeRow), all[0].MessageID)
		assert.Nil(t, all[0].Deferral)
		assert.Equal(t, outbox.StateDue, all[0].State)
		for i, r := range all[1:] {
			require.Equal(t, messageID(deferredRows-i), r.MessageID, "newest first")
			require.True(t, r.Deferred)
			require.Equal(t, outbox.StateBehind, r.State)
			require.NotNil(t, r.Deferral)
			require.Equal(t, messageID(deferredHead), r.Deferral.MessageID)
			require.Equal(t, "backoff", r.Deferral.Reason)
			require.WithinDuration(t, time.Now().Add(time.Hour), r.Deferral.Until, 5*time.Minute)
		}
		failed, _ := list("--status", "failed")
		require.Len(t, failed, 1)
		require.NotNil(t, failed[0].Deferral)
		assert.Equal(t, failed[0].MessageID, failed[0].Deferral.MessageID, "it waits for its own retry")
		assert.Equal(t, outbox.StateBackoff, failed[0].State)

		page, next := list("--status", "pending", "--limit", "1400")
		require.Len(t, page, 1400)
		rest, next := list("--status", "pending", "--cursor", next, "--limit", "2000")
		assert.Empty(t, next)
		assert.Equal(t, all, append(page, rest...))

		for want, args := range map[int][]string{
			deferredRows + 2: {},
			3:                {"--type", "Ordering.OrderPaid.*"},
			1:                {"--key", "free"},
			deferredRows + 1: {"--key", "stuck"},
		} {
			records, _ := list(append(args, "--limit", "5000")...)
			assert.Len(t, records, want, args)
		}
		for _, args := range [][]string{{"--since", "1h"}, {"--broker", "partner"}, {"--id", messageID(7)}} {
			records, _ := list(append(args, "--limit", "5000", "--status", "pending")...)
			assert.Len(t, records, map[string]int{"--id": 1}[args[0]]+map[bool]int{true: deferredRows + 1}[args[0] != "--id"], args)
		}
		for _, args := range [][]string{{"--until", "1h"}, {"--error-class", "permanent"}, {"--broker", "default"}} {
			records, _ := list(append(args, "--status", "pending")...)
			assert.Empty(t, records, args)
		}

		table := s.does("messages", "list", "--status", "pending", "--limit", "3")
		assert.Regexp(t, `pending +behind `, table)
		assert.Contains(t, table, "backoff of "+messageID(deferredHead)+" in ")
		shown := s.does("messages", "show", messageID(7))
		assert.Regexp(t, `state +behind`, shown)
		assert.Contains(t, shown, "backoff of "+messageID(deferredHead))
	})
}

// Actions by filter select deferred rows, too.
func TestActOnDeferredRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.deferMany()
		// Followers wait for no time of their own, so there is nothing to hurry.
		assert.Equal(t, "main: 0 rows requeued; left alone: 3 behind an earlier message of their key (WAITS FOR in \"fanout messages list\")\n",
			s.does("messages", "requeue", "--type", "Ordering.OrderPaid.*", "--status", "pending", "--yes"))
		assert.Equal(t, "main: 3 rows would be abandoned\n", s.does("messages", "abandon", "--type", "Ordering.OrderPaid.*", "--reason", "r", "--dry-run"))
		assert.Equal(t, "main: 3 rows abandoned\n", s.does("messages", "abandon", "--type", "Ordering.OrderPaid.*", "--reason", "r", "--yes"))

		// One that had failed, was requeued and is deferred behind another one keeps its error.
		text := `{"class":"unavailable","message":"deadline exceeded","at":"2026-01-02T03:04:05Z","attempt":1}`
		s.exec("UPDATE outbox_messages SET last_error = '" + text + "' WHERE " + s.is(9))
		list := lines[api.Record](t, s.does("messages", "list", "--json", "--error-class", "unavailable", "--status", "pending"))
		require.Len(t, list, 1)
		assert.Equal(t, messageID(9), list[0].MessageID)
		assert.Equal(t, "main: 1 row abandoned\n", s.does("messages", "abandon", "--error-class", "unavailable", "--reason", "r"))
		assert.Equal(t, 1, s.count("status = 'abandoned' AND "+s.is(9)))

		// By the fingerprint of the failure the failed message itself is found: it is deferred as
		// well.
		group := lines[wireGroup](t, s.does("messages", "failures", "--json", "--broker", "partner"))
		fingerprint := ""
		for _, g := range group {
			if g.Class == "retryable" {
				fingerprint = g.Fingerprint
			}
		}
		list = lines[api.Record](t, s.does("messages", "list", "--json", "--fingerprint", fingerprint))
		require.Len(t, list, 1)
		assert.Equal(t, messageID(deferredHead), list[0].MessageID)
		assert.Equal(t, "main: 1 row requeued\n", s.does("messages", "requeue", "--fingerprint", fingerprint))
		waiting := lines[api.Record](t, s.does("messages", "list", "--json", "--status", "pending", "--key", "stuck", "--limit", "1"))[0]
		if assert.NotNil(t, waiting.Deferral) {
			assert.Zero(t, waiting.Deferral.Until, "the message that it waits for can go at once")
		}
		assert.Contains(t, s.does("messages", "list", "--status", "pending", "--limit", "2"), "backoff of "+messageID(deferredHead)+" now")
	})
}
