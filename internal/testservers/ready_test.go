package testservers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("connection refused")

func TestAwaitReadyPausesLongerEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, attempts := time.Now(), 0
		require.NoError(t, awaitReady(t.Context(), nil, func(context.Context) error {
			if attempts++; attempts < 9 {
				return errRefused
			}
			return nil
		}))
		// 10 + 20 + ... + 320 ms, then twice the longest pause.
		require.Equal(t, 1630*time.Millisecond, time.Since(start))
	})
}

func TestAwaitReadyGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := awaitReady(t.Context(), nil, func(context.Context) error { return errRefused })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errRefused, "the reason is not lost")
		require.Equal(t, readyPatience, time.Since(start))
	})
}

func TestAwaitReadyBoundsOneAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), attemptTimeout+firstPause/2)
		defer cancel()
		attempts := 0
		err := awaitReady(ctx, nil, func(ctx context.Context) error {
			attempts++
			<-ctx.Done()
			return errRefused
		})
		require.ErrorIs(t, err, errRefused)
		require.Equal(t, 1, attempts)
	})
}

func TestAwaitReadySeesTheServerEnd(t *testing.T) {
	t.Parallel()
	exited := make(chan struct{})
	close(exited)
	err := awaitReady(t.Context(), exited, func(context.Context) error { return errRefused })
	require.ErrorIs(t, err, errExited)
}
