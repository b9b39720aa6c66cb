package adapter_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers/adapter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCloseOfAnEmptyGate(t *testing.T) {
	var g adapter.Gate
	require.True(t, g.Enter())
	g.Leave()

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	first, err := g.Close(ended)
	assert.True(t, first)
	assert.NoError(t, err, "nobody is inside: there is nothing to wait for")
	assert.False(t, g.Enter())

	first, err = g.Close(t.Context())
	assert.False(t, first)
	assert.NoError(t, err)
}

func TestCloseWaitsForThoseInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g adapter.Gate
		require.True(t, g.Enter())
		require.True(t, g.Enter())
		done := make(chan error, 1)
		go func() {
			_, err := g.Close(context.Background())
			done <- err
		}()
		synctest.Wait()
		assert.False(t, g.Enter(), "closed for newcomers while it waits")
		g.Leave()
		synctest.Wait()
		assert.Empty(t, done, "one is still inside")
		g.Leave()
		assert.NoError(t, <-done)
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	var g adapter.Gate
	require.True(t, g.Enter())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	first, err := g.Close(ended)
	assert.True(t, first)
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "1 publish calls")
	g.Leave() // the late one does no harm
}
