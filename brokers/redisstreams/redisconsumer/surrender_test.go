package redisconsumer

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// What another member takes over while it is being claimed is not left behind in the session.
func TestSurrenderWhileClaimed(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // which is not asked
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	c, err := NewConsumer(client, "g", []string{"s"}, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		return inbox.Handled, nil
	}), Config{ConsumerConfig: inbox.ConsumerConfig{Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	r := c.newRun(t.Context())
	f := r.feeds[0]
	for i := range 500 {
		d, err := r.newDelivery(f, entryID{uint64(i + 1), 0}.String(), 1, map[string]string{"data": "{}", "id": "x", "type": "T", "ordering_key": "k"})
		require.NoError(t, err)
		claimed := make(chan struct{})
		go func() {
			defer close(claimed)
			r.admit(f, []*delivery{d})
		}()
		for known := false; !known; {
			r.mu.Lock()
			_, known = f.claims[d.position]
			r.mu.Unlock()
		}
		r.surrender(t.Context(), f, []*delivery{d})
		<-claimed
	}
	require.Eventually(t, func() bool {
		left, running := r.Figures()
		return left+running == 0
	}, 30*time.Second, time.Millisecond)
	r.Stop(func() {})
}
