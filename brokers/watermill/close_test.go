package watermill_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/watermill"
)

// TestCloseAndHang: Close waits for what hangs, closes the publisher in any case, and once.
func TestCloseAndHang(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			p := hangs(release, "id-1")
			b := watermill.New(p)
			within(t, 1, b, numbered("orders", "a", 1))
			closed := make(chan error, 1)
			go func() { closed <- b.Close(t.Context()) }()
			synctest.Wait()
			assert.Empty(t, closed)
			assert.Zero(t, p.closed)
			close(release)
			require.NoError(t, <-closed)
			require.NoError(t, b.Close(t.Context()))
			assert.Equal(t, 1, p.closed)
		})
	})
	t.Run("not in time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			p := hangs(release, "id-1")
			p.close = func() error { // as many do
				close(release)
				return errors.New("with messages in progress")
			}
			b := watermill.New(p)
			within(t, 1, b, numbered("orders", "a", 1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := b.Close(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "1 publish calls still in progress")
			assert.ErrorContains(t, err, "with messages in progress")
			assert.Equal(t, 1, p.closed)
		})
	})
	t.Run("the publisher does not close", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			b := watermill.New(&publisher{close: func() error {
				<-release
				return nil
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			require.ErrorContains(t, b.Close(ctx), "watermill: close: the publisher does not come to an end")
			assert.Equal(t, 2*time.Second, time.Since(began))
			close(release)
		})
	})
	t.Run("the publisher panics", func(t *testing.T) {
		t.Parallel()
		b := watermill.New(&publisher{close: func() error { panic("no logger") }})
		require.EqualError(t, b.Close(t.Context()), "watermill: close: the publisher panicked: no logger")
	})
}
