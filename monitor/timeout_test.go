package monitor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A page waits a short time; an action goes on for longer.
func TestRequestsHaveTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(*admin.BrokerOverview) { time.Sleep(3 * time.Second) }
		store := (&fake{overview: slow}).add(1100, failed("retryable", "x %d"))
		store.after = func() { time.Sleep(time.Minute) }
		h := newHandler(t, store, func(cfg *Config) { cfg.Timeout = time.Second })
		wantProblem(t, call(h, "GET", "/api/outbox/main/messages", "", as(viewerToken)), 504, "did not answer in time")
		assert.Equal(t, 200, call(h, "POST", actions, `{"action": "requeue", "broker": "default"}`, as(operatorToken)).Code)
		assert.Len(t, store.changed, 1100)
	})
}
