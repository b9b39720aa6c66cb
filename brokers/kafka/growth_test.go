package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
)

// A topic gets partitions while a server is out, and each call has its client learn of them beside the next one.
// A key is in one partition in a round all the same, and no message of it is confirmed behind one that is not.
func TestTopicGrowsInAnOutage(t *testing.T) {
	t.Parallel()
	const keys, most = 20, 300
	c := startThree(t, 6)
	w := newNetwork()
	b := open(t, c.seeds()[:2], w.settings())
	n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
	require.Equal(t, 24, n[""], said)
	w.lose(c.seeds()[2])
	n, said = kinds(b.Publish(t.Context(), perKey("there", 24)))
	require.Positive(t, n["unavailable partition"], said)
	var msgs []brokers.Message
	for i := range 500 {
		msgs = append(msgs, numbered("there", fmt.Sprint("key-", i%keys), i))
	}
	asked := make(chan struct{}, 1) // a client has asked how many there are, in most cases: the next one is news to it
	c.fake.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		if question := request.(*kmsg.MetadataRequest); question.Topics == nil || len(question.Topics) > 0 {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return nil, nil, false //nolint:nilnil // the fake cluster answers
	})
	ctx, stop := context.WithCancel(t.Context())
	var (
		growing sync.WaitGroup
		grown   atomic.Bool
	)
	defer growing.Wait()
	defer stop()
	growing.Go(func() {
		defer grown.Store(true)
		for partitions := 7; partitions <= most; partitions++ {
			select {
			case <-asked:
			case <-ctx.Done():
				return
			}
			if _, err := c.admin.CreatePartitions(ctx, 1, "there"); ctx.Err() == nil {
				assert.NoError(t, err)
			}
		}
	})
	for !grown.Load() {
		failed, place := map[string]bool{}, map[string]string{}
		for i, r := range b.Publish(t.Context(), msgs) {
			key := msgs[i].OrderingKey
			if r.Err != nil {
				failed[key] = true
				continue
			}
			require.False(t, failed[key], "%s of %s was confirmed, and one before it was not", msgs[i].ID, key)
			in := r.BrokerMessageID[:strings.LastIndexByte(r.BrokerMessageID, ':')]
			if place[key] == "" {
				place[key] = in
			}
			require.Equal(t, place[key], in, "the partition of %s", key)
		}
	}
}
