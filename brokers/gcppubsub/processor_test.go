package gcppubsub_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
	"github.com/gorm-fanout/fanout/outbox"
)

// TestProcessor: a processor on a SQLite file gives up the message that makes Pub/Sub fail each
// time, and that one alone: those behind it on its key, which shared its requests, lose no attempt
// and are published.
func TestProcessor(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	const poison = "0198c5f0-0000-7000-8000-00000000000a"
	s.reacts(refusingWith(codes.Unknown, poison))

	r := relaytest.Start(t, s.open(t), outbox.Policy{
		PollMin: time.Millisecond, PollMax: 10 * time.Millisecond, Workers: 1,
		Retry: outbox.Retry{MaxAttempts: 3, BaseDelay: 10 * time.Millisecond, Jitter: -1},
	}, nil)
	rows := make([]outbox.Row, 18)
	for i := range rows {
		rows[i] = outbox.Row{Stream: "orders", OrderingKey: "a"}
		if i > 1 && i%2 == 1 {
			rows[i].OrderingKey = "b"
		}
	}
	rows[1].MessageID = uuid.MustParse(poison)
	r.Insert(rows...)

	require.Eventually(t, func() bool { return r.Count("status IN ('published', 'abandoned')") == 18 }, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, 17, r.Count("status = 'published'"))
	assert.Equal(t, 1, r.Count("status = 'abandoned' AND attempts = 3 AND message_id = ?", poison))
	assert.Zero(t, r.Count("attempts > 1 AND message_id <> ?", poison), "the others have had one attempt at most")
	assert.Len(t, s.received(t, "orders"), 17, "each once")
}
