package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/uow"
)

// Fifty copies of each of a hundred messages, in eight goroutines, with failures and panics at
// random, before the effect, after it and instead of it: each has its effect once.
func TestManyCopies(t *testing.T) {
	t.Parallel()
	const messages, copies, workers = 100, 50, 8
	onEach(t, func(t *testing.T, p *place) {
		seed := testenv.Seed(t)
		var all []*inbox.Message
		for range messages {
			all = append(all, p.message())
			all[len(all)-1].MaxAttempts = 1000
		}
		deliveries := make(chan *inbox.Message, messages*copies)
		for _, i := range rand.New(rand.NewPCG(uint64(seed), 0)).Perm(messages * copies) {
			deliveries <- all[i%messages]
		}
		close(deliveries)
		var group sync.WaitGroup
		for worker := range workers {
			random := rand.New(rand.NewPCG(uint64(seed), uint64(worker)+1))
			group.Go(func() {
				for m := range deliveries {
					fate := random.IntN(8)
					outcome, err := inbox.Handle(t.Context(), p.db, m, p.fated(m, fate), p.at())
					if err != nil {
						var failed *inbox.FailedError
						assert.True(t, errors.As(err, &failed) || inbox.IsUnavailable(err) || uow.IsConflict(err), "%v", err)
						continue
					}
					assert.Contains(t, []inbox.Outcome{inbox.Handled, inbox.Duplicate}, outcome)
				}
			})
		}
		group.Wait()
		for _, m := range all {
			_, err := p.handle(m) // the last copy of one that has only ever failed
			require.NoError(t, err)
			require.Equal(t, 1, p.done(m))
		}
		require.Equal(t, messages, p.count("SELECT count(*) FROM "+p.effects()))
		require.Equal(t, messages, p.count("SELECT count(*) FROM "+p.table+" WHERE status = 'handled'"))
		require.Equal(t, messages, p.rows())
	})
}

// fated is the effect, or one of the ways in which it goes wrong.
func (p *place) fated(m *inbox.Message, fate int) func(tx *gorm.DB) error {
	return func(tx *gorm.DB) error {
		if fate == 0 {
			return errBoom
		}
		err := p.effect(m)(tx)
		switch fate {
		case 1:
			return errors.Join(err, errBoom)
		case 2:
			panic("oh")
		case 3:
			return inbox.Unavailable(errBoom)
		default:
			return err
		}
	}
}

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
