package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/outbox"
)

// A pending row that waits for a time says for which, and the step that is advised leads to a command that
// works: a requeue that names no status says which flag takes the row.
func TestPendingRowsThatWaitForATime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		const hint = "main: 0 rows requeued; left alone: 1 pending (--status pending takes those that wait for a time)\n"
		for n, key := range map[int]string{1: "order-1", 2: "order-2"} {
			row := message(n, "Ordering.OrderPlaced.v1", key, "partner")
			row.AvailableAt = time.Now().Add(2 * time.Hour)
			s.insert(row)
		}
		// A worker had the second one, which counted as no attempt.
		s.exec("UPDATE outbox_messages SET locked_until = available_at, available_at = NULL WHERE " + s.is(2))

		list := s.does("messages", "list")
		assert.Regexp(t, `scheduled .*order-1 .*scheduled in (1h59m|2h)`, list)
		assert.Regexp(t, `backoff .*order-2 .*backoff in (1h59m|2h)`, list)
		assert.Regexp(t, `waits for +scheduled in `, s.does("messages", "show", messageID(1)))
		assert.Contains(t, s.does("status"), "main: broker partner: 1 scheduled for later")
		assert.Contains(t, s.does("trace", "order-2"), "→ repair the cause; requeue it to try at once: by its id, or with --status pending")

		assert.Equal(t, hint, s.does("messages", "requeue", "--key", "order-2", "--broker", "partner"))
		assert.Equal(t, hint, s.does("messages", "requeue", "--key", "order-1"))
		assert.Contains(t, s.does("messages", "requeue", "--key", "order-1", "--dry-run"), "0 rows would be requeued; left alone: 1 pending (")
		assert.Contains(t, s.does("messages", "requeue", "--key", "order-1", "--json"), `"left":{"pending":1}`)
		assert.Equal(t, "main: 1 row requeued\n", s.does("messages", "requeue", "--key", "order-2", "--status", "pending"))
		assert.Equal(t, "main: 1 row requeued\n", s.does("messages", "requeue", "--id", messageID(1)))
		assert.Equal(t, "main: 0 rows requeued\n", s.does("messages", "requeue", "--key", "order-1"), "what is due waits for no time")
	})
}

// What a published row still has of its last failure is no error of now.
func TestFailureBeforeItWasPublished(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.write(1, "Ordering.OrderPlaced.v1", "order-1", "default")
		s.does("messages", "abandon", "--id", messageID(1), "--reason", "by mistake")
		s.does("messages", "requeue", "--id", messageID(1))
		s.complete("default", func(string) *outbox.LastError { return nil })
		assert.Contains(t, s.does("trace", messageID(1)), "last error: before it was published: operator")
		assert.Regexp(t, `error +before it was published: operator`, s.does("messages", "show", messageID(1)))
		assert.Contains(t, s.does("messages", "list"), "before it was published: ")
	})
}
