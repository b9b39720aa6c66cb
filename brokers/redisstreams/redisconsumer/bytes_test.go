package redisconsumer_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// What is claimed is bounded by its bytes, too, whatever whoever may write to the stream puts into it:
// no more is read while there are as many, and all of it is handled.
func TestPrefetchBytes(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	var many []any
	for n := range size / consumer.HeaderBytes {
		many = append(many, strconv.FormatInt(int64(n), 36), "")
	}
	for name, fields := range map[string][]any{"Large": {"note", strings.Repeat("x", size)}, "Many": many} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPrefetchBytes(t, size, fields)
		})
	}
}

// testPrefetchBytes does so with entries that have fields of so many bytes.
func testPrefetchBytes(t *testing.T, size int, fields []any) {
	t.Helper()
	const entries = 24
	var (
		budget = 4 * size
		most   = size + size/10
		first  = 8 // that a read may bring of which nothing is known
	)
	s := newSite(t)
	for i := range entries {
		key := fmt.Sprint("key-", i)
		payload, err := sealed(t, key, i).MarshalInternal()
		require.NoError(t, err)
		require.NoError(t, s.XAdd(t.Context(), &redis.XAddArgs{Stream: s.stream, Values: append([]any{
			"data", payload, "id", "x", "type", "T", "ordering_key", key,
		}, fields...)}).Err())
	}
	var (
		c       *run
		goOn    = make(chan struct{})
		handled = make(chan string, entries)
	)
	handler := inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		select {
		case <-goOn:
		case <-ctx.Done():
			return inbox.Handled, context.Cause(ctx)
		}
		handled <- m.ID
		return inbox.Handled, nil
	})
	var failed error
	held := func() redisconsumer.StreamStats {
		var all []redisconsumer.StreamStats
		all, failed = c.Streams(t.Context()) // the group may have to be made yet
		return all[0]
	}
	defer func() {
		if t.Failed() {
			t.Log(failed)
		}
	}()
	c = start(t, s, s.stream, handler,
		redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 2, MaxOutstandingMessages: 50, MaxOutstandingBytes: budget}})
	soon(t, "as many as are allowed are there", func() bool { return held().Bytes >= int64(budget) })
	ids := map[string]bool{}
	for range entries {
		assert.LessOrEqual(t, held().Bytes, int64(first*most))
		assert.LessOrEqual(t, held().Claimed, first+2)
		goOn <- struct{}{}
		ids[<-handled] = true
	}
	assert.Len(t, ids, entries)
	soon(t, "nothing is left", func() bool { return held().Bytes == 0 && held().Claimed == 0 })
}
