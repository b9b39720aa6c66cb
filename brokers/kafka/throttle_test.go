package kafka_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// A server that waits for its replicas, and has the client wait after each question, is well.
func TestThrottledQuestions(t *testing.T) {
	t.Parallel()
	c := startThree(t, 6)
	f, held, questions, confirm := c.fake, false, 0, make(chan struct{})
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if f.CurrentNode() == 2 {
			held = true
			f.SleepControl(func() {
				select {
				case <-confirm:
				case <-t.Context().Done():
				}
			})
		}
		return nil, nil, false //nolint:nilnil // the fake cluster answers
	})
	f.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if asked := request.(*kmsg.MetadataRequest); asked.Topics == nil || len(asked.Topics) > 0 {
			return nil, nil, false //nolint:nilnil // see above
		}
		if held && f.CurrentNode() == 2 {
			if questions++; questions == 2 { // after the pause, in which a further one would have found no answer
				close(confirm)
			}
		}
		answer := request.ResponseKind().(*kmsg.MetadataResponse)
		answer.ThrottleMillis = 2500
		for i, port := range c.ports {
			server := kmsg.NewMetadataResponseBroker()
			server.NodeID, server.Host, server.Port = int32(i), "127.0.0.1", int32(port)
			answer.Brokers = append(answer.Brokers, server)
		}
		return answer, nil, true
	})
	n, said := kinds(open(t, c.seeds()[:1]).Publish(t.Context(), perKey("there", 24)))
	assert.Equal(t, 24, n[""], said)
}

// A quota on what is published: the answer confirms, and has the client wait. What waits too long says so.
func TestThrottledMessages(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "there"))
	f := c.fake
	f.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		return confirming(request, time.Minute), nil, true
	})
	b := open(t, c.seeds(), kafka.Settings{Timeout: 2 * time.Second})
	publish := func() (map[string]int, map[string]string) { return kinds(b.Publish(t.Context(), perKey("there", 1))) }
	n, said := publish()
	require.Equal(t, 1, n[""], said)
	n, said = publish()
	require.Equal(t, 1, n["unavailable destination"], said)
	require.Contains(t, said["unavailable destination"], "raise the user's quota")
}

// A server that has the client wait for long gets nothing until then, from no client: the messages for it have
// their answer at once, and those for others theirs.
func TestThrottledServer(t *testing.T) {
	t.Parallel()
	c := startThree(t, 6)
	f := c.fake
	var asked atomic.Int64
	f.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if f.CurrentNode() != 2 {
			return nil, nil, false //nolint:nilnil // the fake cluster answers
		}
		asked.Add(1)
		return confirming(request, 5*time.Minute), nil, true
	})
	b := open(t, c.seeds(), kafka.Settings{Timeout: 2 * time.Second})
	n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
	require.Equal(t, 24, n[""], said)
	for call := range 6 {
		n, said = kinds(b.Publish(t.Context(), perKey("there", 24)))
		assert.Equal(t, map[string]int{"": 16, "unavailable partition": 8}, n, "call %d: %v", call, said)
		assert.Contains(t, said["unavailable partition"], "raise the user's quota")
		assert.NotContains(t, said["unavailable partition"], "perhaps published", "call %d", call)
	}
	assert.EqualValues(t, 1, asked.Load())
}
