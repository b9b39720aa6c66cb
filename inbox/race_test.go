package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
)

// A handler may return at the end of its context, while a goroutine of its own is still in Handle: neither the next
// attempt nor the answer is in its way.
func TestHandleOutlivesTheAttempt(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	m := p.message()
	var left sync.WaitGroup
	r := &inbox.Runner{
		Timeout: 10 * time.Millisecond, Retry: inbox.Retry{MaxAttempts: 3}, Log: slog.New(slog.DiscardHandler),
		Handler: inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
			left.Go(func() {
				_, _ = inbox.Handle(ctx, p.db, m, func(*gorm.DB) error {
					time.Sleep(30 * time.Millisecond)
					return errors.New("late")
				}, p.at())
			})
			<-ctx.Done()
			return "", ctx.Err()
		}),
	}
	var past inbox.Past
	for range 3 {
		past = r.Attempt(t.Context(), m, past).Past
	}
	left.Wait()
	assert.Equal(t, 3, past.Failures)
}
