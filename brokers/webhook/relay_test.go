package webhook_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
	"github.com/gorm-fanout/fanout/outbox"
)

// A receiver that has another secret, and answers 400 as many do, costs no message an attempt,
// however long it takes to find out; and the one message that it really refuses is abandoned.
func TestRelayWithAWrongSecret(t *testing.T) {
	t.Parallel()
	p := startPartner(t, true)
	p.answers(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "invalid signature", http.StatusBadRequest)
	})

	const messages, keys = 100, 10
	poison := uuid.New()
	p.refuse(t, poison.String())
	rows := make([]outbox.Row, messages)
	for i := range rows {
		rows[i].OrderingKey = fmt.Sprint("k", i%keys)
	}
	rows[0].MessageID = poison
	r := relaytest.Start(t, p.open(t), outbox.Policy{
		PollMin: time.Millisecond, PollMax: 10 * time.Millisecond,
		Breaker: outbox.Breaker{MinDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond},
		Retry:   outbox.Retry{MaxAttempts: 3, BaseDelay: 10 * time.Millisecond, Jitter: -1},
	}, nil)
	r.Insert(rows...)

	require.Eventually(t, func() bool { return p.requests() > 5*keys }, 4*patience, 10*time.Millisecond, "the first of each key could have had its attempts")
	assert.Equal(t, messages, r.Count("finished_at IS NULL AND attempts = 0"))
	assert.Positive(t, r.Count("last_error LIKE '%invalid signature%check the secret%'"), "it says what to do")

	p.answers(nil)
	require.Eventually(t, func() bool { return r.Count("finished_at IS NULL") == 0 }, 4*patience, 10*time.Millisecond)
	assert.Equal(t, 1, r.Count("status = 'abandoned'"))
	assert.Equal(t, 1, r.Count("status = 'abandoned' AND attempts = 3 AND message_id = ?", poison.String()))
	assert.Equal(t, messages-1, r.Count("status = 'published' AND attempts <= 1"))
}
