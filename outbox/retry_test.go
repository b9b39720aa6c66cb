package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, outbox.Policy{}.Validate())
	err := outbox.Policy{
		Workers: -1, BatchSize: outbox.MaxBatchSize + 1, Lease: time.Second, PublishTimeout: 2 * time.Second,
		PollMin: time.Minute, PollMax: time.Second, Rate: -1, Breaker: outbox.Breaker{TripAfter: -1, MinDelay: -1},
	}.Validate()
	for _, text := range []string{
		"rate is -1", "breaker.trip_after is -1", "breaker.min_delay is -1ns",
		"workers is -1", "batch_size is 2001", "publish_timeout (2s) must be below lease (1s)", "poll.max (1s) is below poll.min (1m0s)",
	} {
		require.ErrorContains(t, err, text)
	}
}
