package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// A topic gets partitions while a server is out, and each call has its client learn of them beside the next one.
// A key is in one partition in a round all the same, and no message of it is confirmed behind one that is not.
func TestTopicGrowsInAnOutage(t *testing.T) {
	t.Parallel()
	const keys, most = 20, 150
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
	growing := make(chan struct{})
	go func() {
		defer close(growing)
		for partitions := 7; partitions <= most; partitions++ {
			_, err := c.admin.CreatePartitions(t.Context(), 1, "there")
			assert.NoError(t, err)
			_, err = c.admin.ListTopics(t.Context(), "there") // at the pace at which clients learn
			assert.NoError(t, err)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for over := false; !over; {
		select {
		case <-growing:
			over = true
		default:
		}
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
