package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The rows of a relay that has died can be repaired while no other one runs; those of one that
// lives cannot.
func TestRowsOfADeadWorker(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		for n := 1; n <= 3; n++ {
			s.write(n, "Ordering.OrderPlaced.v1", "order-1", "default")
		}
		s.claim("default", true)
		assert.Equal(t, "main: 1 row requeued\n", s.does("messages", "requeue", "--id", messageID(1)))
		assert.Equal(t, "main: 2 rows would be requeued\n", s.does("messages", "requeue", "--status", "processing", "--dry-run"))
		assert.Equal(t, "main: 1 row abandoned\n", s.does("messages", "abandon", "--id", messageID(2)))
		assert.Equal(t, "main: 2 rows abandoned\n", s.does("messages", "abandon", "--key", "order-1"))
		assert.Equal(t, 3, s.count("status = 'abandoned'"))

		s.write(4, "Ordering.OrderPlaced.v1", "order-2", "default")
		s.claim("default", false)
		assert.Equal(t, "main: 0 rows would be abandoned; left alone: 1 claimed by a worker, whose lease has not expired\n", s.does("messages", "abandon", "--key", "order-2", "--dry-run"))
		assert.Equal(t, "main: 0 rows requeued; left alone: 1 claimed by a worker, whose lease has not expired\n", s.does("messages", "requeue", "--id", messageID(4)))
		assert.Equal(t, 1, s.count("status = 'processing'"))
	})
}
