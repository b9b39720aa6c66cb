package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

// poison abandons n rows of as many keys under on_abandon: block, as a relay does.
func (s *shop) poison(from, n int) {
	s.Helper()
	for i := range n {
		s.write(from+i, "Ordering.OrderPlaced.v1", fmt.Sprintf("poison-%d", from+i), "partner")
	}
	s.complete("partner", func(id string) *outbox.LastError {
		for i := range n {
			if id == messageID(from+i) {
				return &outbox.LastError{Class: "permanent", Message: "schema mismatch"}
			}
		}
		return &outbox.LastError{Class: "not_sent"}
	})
}

// Of many blocked keys the list begins with the one that holds the most, says how many there are, and
// names what blocks a message; and one command is enough for all.
func TestManyBlockedKeys(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		const n = 40
		s.poison(1, n)
		for i := range 5 {
			s.write(100+i, "Ordering.OrderShipped.v1", "poison-33", "partner")
		}
		s.write(110, "Ordering.OrderShipped.v1", "poison-7", "partner")

		_, table, totals := s.run("messages", "blocked", "--limit", "2")
		assert.Contains(t, totals, "main: 2 of 40 keys listed, with 6 rows behind all of them; 40 wait for you, with 6 rows behind them; --limit lists more\n")
		assert.Contains(t, table, "poison-33")
		list := s.does("messages", "blocked", "--limit", "2", "--json")
		keys := lines[api.KeyBlock](t, list)
		require.Len(t, keys, 3)
		assert.Equal(t, []string{"poison-33", "poison-7"}, []string{keys[0].Key, keys[1].Key})
		assert.EqualValues(t, 5, keys[0].Followers)
		sums := lines[api.KeyTotals](t, list)[2]
		assert.Equal(t, api.KeyCount{Keys: n, Rows: 6}, sums.Blocked)
		_, _, stderr := s.run("messages", "blocked", "--limit", "0")
		assert.Contains(t, stderr, "--limit is 0: use 1 to 10000")

		assert.Contains(t, s.does("messages", "show", messageID(100)), "behind "+messageID(33)+", abandoned ")
		assert.Contains(t, s.does("messages", "list", "--key", "poison-7", "--status", "pending"), "behind "+messageID(7)+", abandoned ")

		// Seen, and still blocked.
		assert.Equal(t, "main: 40 rows would be acknowledged\n", s.does("messages", "acknowledge", "--broker", "partner", "--dry-run"))
		assert.Equal(t, "main: 1 row acknowledged\n", s.does("messages", "acknowledge", "--key", "poison-1", "--reason", "known"))
		assert.Equal(t, "main: 39 rows acknowledged\n", s.does("messages", "acknowledge", "--broker", "partner", "--yes"))
		assert.Equal(t, "main: 0 rows acknowledged\n", s.does("messages", "acknowledge", "--broker", "partner"))

		// Unblocked, by the group of their failures.
		groups := lines[struct{ Fingerprint string }](t, s.does("messages", "failures", "--json"))
		require.Len(t, groups, 1)
		assert.Equal(t, "main: 1 key unblocked\n", s.does("messages", "unblock", "--broker", "partner", "--key-prefix", "poison-33", "--error-class", "permanent"))
		assert.Equal(t, "main: 39 keys would be unblocked\n", s.does("messages", "unblock", "--fingerprint", groups[0].Fingerprint, "--dry-run"))
		assert.Equal(t, "main: 39 keys unblocked\n", s.does("messages", "unblock", "--broker", "partner", "--fingerprint", groups[0].Fingerprint, "--yes"))
		_, stdout, nothing := s.run("messages", "blocked")
		assert.Contains(t, stdout+nothing, "no key waits")
		_, _, stderr = s.run("messages", "unblock")
		assert.Contains(t, stderr, "unblock needs to know which messages")
		_, _, stderr = s.run("messages", "unblock", "poison-1", "--broker", "partner", "--type", "x")
		assert.Contains(t, stderr, "with a KEY, only --broker says more")

		// Removed, with those that block keys.
		s.poison(500, 3)
		s.write(600, "Ordering.OrderShipped.v1", "poison-501", "partner")
		assert.Equal(t, "main: 3 rows discarded\n", s.does("messages", "discard", "--key-prefix", "poison-50"))
		_, stdout, nothing = s.run("messages", "blocked")
		assert.NotContains(t, stdout+nothing, "poison-50") // the relay has put the others off for a moment
		assert.Equal(t, n, s.count("status = 'abandoned'"))
		assert.Equal(t, "main: 40 rows discarded\n", s.does("messages", "discard", "--fingerprint", groups[0].Fingerprint, "--yes"))
		assert.Zero(t, s.count("status = 'abandoned'"))
		audit := s.does("audit")
		for _, verb := range []string{"acknowledge", "unblock", "discard"} {
			assert.Contains(t, audit, verb)
		}
	})
}
