package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

const (
	deferredRows = 6
	deferredHead = 50 // number of the message that blocks the key
)

// deferSome writes a message that fails, and rows of its key that are deferred behind it.
func (s *shop) deferSome() {
	s.Helper()
	s.write(deferredHead, "Ordering.OrderPlaced.v1", "stuck", "partner")
	s.complete("partner", func(string) *outbox.LastError {
		return &outbox.LastError{Class: "retryable", Message: "deadline exceeded"}
	})
	rows := make([]outbox.Row, 0, deferredRows)
	for n := 1; n <= deferredRows; n++ {
		eventType := "Ordering.OrderPlaced.v1"
		if n%2 == 0 {
			eventType = "Ordering.OrderPaid.v1"
		}
		rows = append(rows, message(n, eventType, "stuck", "partner"))
	}
	s.insert(rows...)
	nothing := func(string) *outbox.LastError { return &outbox.LastError{Class: "not_sent"} }
	s.relays("partner", &scripted{outcome: nothing}, func() bool {
		return s.count(map[bool]string{true: "deferred", false: "deferred = 1"}[s.driver == outbox.Postgres]) == deferredRows+1
	})
}

// Actions by filter select deferred rows, too.
func TestActOnDeferredRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.deferSome()
		// Followers wait for no time of their own, so there is nothing to hurry.
		assert.Equal(t, "main: 0 rows requeued; left alone: 3 behind an earlier message of their key (WAITS FOR in \"fanout messages list\")\n",
			s.does("messages", "requeue", "--type", "Ordering.OrderPaid.*", "--status", "pending", "--yes"))
		assert.Equal(t, "main: 3 rows would be abandoned\n", s.does("messages", "abandon", "--type", "Ordering.OrderPaid.*", "--reason", "r", "--dry-run"))
		assert.Equal(t, "main: 3 rows abandoned\n", s.does("messages", "abandon", "--type", "Ordering.OrderPaid.*", "--reason", "r", "--yes"))

		// One that had failed, was requeued and is deferred behind another one keeps its error.
		text := `{"class":"unavailable","message":"deadline exceeded","at":"2026-01-02T03:04:05Z","attempt":1}`
		s.exec("UPDATE outbox_messages SET last_error = '" + text + "' WHERE " + s.is(5))
		list := lines[api.Record](t, s.does("messages", "list", "--json", "--error-class", "unavailable", "--status", "pending"))
		require.Len(t, list, 1)
		assert.Equal(t, messageID(5), list[0].MessageID)
		assert.Equal(t, "main: 1 row abandoned\n", s.does("messages", "abandon", "--error-class", "unavailable", "--reason", "r"))
		assert.Equal(t, 1, s.count("status = 'abandoned' AND "+s.is(5)))

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
