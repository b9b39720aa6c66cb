package contention_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/contention"
)

var errLost, errLocked, errOther = errors.New("lost"), errors.New("locked"), errors.New("other")

func cause(err error) contention.Cause {
	switch {
	case errors.Is(err, errLost):
		return contention.Lost
	case errors.Is(err, errLocked):
		return contention.Locked
	default:
		return contention.None
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		errs  []error // the last one stays
		want  error
		tries int // 0: as many as there is time for
	}{
		"at once":                     {[]error{nil}, nil, 1},
		"lost once":                   {[]error{errLost, nil}, nil, 2},
		"lost each time":              {[]error{errLost}, errLost, contention.Tries},
		"lost and locked in between":  {[]error{errLost, errLocked, errLost, errLocked, nil}, nil, 5},
		"locked for long":             {[]error{errLocked}, errLocked, 0},
		"an error that is none of it": {[]error{errLocked, errOther}, errOther, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, tries := time.Now(), 0
				err := contention.Retry(t.Context(), contention.Patience, cause, func() error {
					tries++
					return c.errs[min(tries, len(c.errs))-1]
				})
				require.Equal(t, c.want, err)
				if c.tries > 0 {
					assert.Equal(t, c.tries, tries)
					return
				}
				took := time.Since(began)
				assert.GreaterOrEqual(t, took, contention.Patience)
				assert.Less(t, took, contention.Patience+time.Second)
				assert.Greater(t, tries, 20, "it does not wait for long when the row is free")
			})
		})
	}
}

// A caller who has no more time gets to know what was in the way.
func TestRetryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := contention.Retry(ctx, contention.Patience, cause, func() error { return errLocked })
		require.ErrorIs(t, err, errLocked)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// A pause ends with the context, and there is none when patience has run out.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for try := 1; time.Since(began) < contention.Patience; try++ {
			require.NoError(t, contention.Pause(t.Context(), began, try, errLocked))
		}
		require.Equal(t, errLocked, contention.Pause(t.Context(), began, 1, errLocked))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := contention.Pause(ctx, time.Now(), 1, errLocked)
		require.ErrorIs(t, err, errLocked)
		require.ErrorIs(t, err, context.Canceled)
	})
}
