package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func message(id, key string) brokers.Message {
	return brokers.Message{ID: id, Destination: "orders", Type: "T.v1", OrderingKey: key, Payload: []byte(id)}
}

func ids(messages []brokers.Message) (ids []string) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestTheResultIsWhatFailReturns(t *testing.T) {
	failure := brokers.Retryable(errors.New("gone"))
	b := memory.New()
	b.Fail = func(m brokers.Message) error {
		m.Payload[0] = 'x' // its own copy
		if m.ID == "2" {
			return failure
		}
		return nil
	}
	msgs := []brokers.Message{message("1", "k"), message("2", "k"), message("3", "k"), message("4", "")}
	results := b.Publish(t.Context(), msgs)
	require.Len(t, results, 4)
	assert.NoError(t, results[0].Err)
	assert.Equal(t, failure, results[1].Err)
	require.ErrorIs(t, results[2].Err, brokers.ErrNotSent)
	assert.ErrorContains(t, results[2].Err, "gone", "says why")
	assert.NoError(t, results[3].Err)
	assert.Equal(t, []string{"1", "4"}, ids(b.Messages("orders")))
	assert.Equal(t, "1", string(b.Messages("orders")[0].Payload))
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		got := make(chan []brokers.Message)
		go func() {
			messages, err := b.Wait(t.Context(), "orders", 2)
			assert.NoError(t, err)
			got <- messages
		}()
		b.Publish(t.Context(), []brokers.Message{message("1", "")})
		synctest.Wait()
		b.Publish(t.Context(), []brokers.Message{message("2", "")})
		assert.Equal(t, []string{"1", "2"}, ids(<-got))

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		messages, err := b.Wait(ended, "orders", 3)
		require.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, "2 came")
		assert.Len(t, messages, 2)

		require.NoError(t, b.Close(t.Context()))
		_, err = b.Wait(t.Context(), "orders", 3)
		assert.ErrorIs(t, err, brokers.ErrClosed)
	})
}

func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		b.Publish(t.Context(), []brokers.Message{message("1", ""), message("2", "")})
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for m := range b.Subscribe(t.Context(), "orders") {
				got = append(got, m.ID)
			}
		}()
		synctest.Wait()
		b.Publish(t.Context(), []brokers.Message{message("3", "")})
		synctest.Wait()
		b.Reset()
		assert.Empty(t, b.Destinations())
		b.Publish(t.Context(), []brokers.Message{message("4", ""), message("5", ""), message("6", ""), message("7", "")})
		require.NoError(t, b.Close(t.Context()))
		<-done
		assert.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7"}, got)
		assert.Equal(t, []string{"orders"}, b.Destinations())
	})
}

func TestAMessageWithoutDestinationFailsForGood(t *testing.T) {
	results := memory.New().Publish(t.Context(), []brokers.Message{{ID: "1", Type: "T.v1"}})
	class, _ := brokers.Classify(results[0].Err)
	assert.Equal(t, brokers.ClassPermanent, class)
}
