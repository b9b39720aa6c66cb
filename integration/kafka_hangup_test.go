package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/outbox"
)

// A message at which the leader of its Kafka partition hangs up, as behind a proxy that inspects what passes,
// costs itself: it is abandoned when its attempts are spent, whatever the traffic beside it is, and what waits
// behind it goes on.
func TestMessageAtWhichAKafkaServerHangsUp(t *testing.T) {
	t.Parallel()
	for name, pace := range map[string]time.Duration{"many messages": time.Millisecond, "few messages": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(6, "orders"))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			var hangups atomic.Int64
			cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				for _, topic := range request.(*kmsg.ProduceRequest).Topics {
					for _, partition := range topic.Partitions {
						if bytes.Contains(partition.Records, []byte("poison")) {
							hangups.Add(1)
							return nil, errors.New("hang up"), true
						}
					}
				}
				return nil, nil, false //nolint:nilnil // the fake cluster answers
			})
			target, err := kafka.Open(kafka.Settings{BootstrapServers: strings.Join(cluster.ListenAddrs(), ","), Topic: func(string) string { return "orders" }})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, target.Close(context.WithoutCancel(t.Context()))) })
			r := relaytest.Start(t, target, outbox.Policy{
				PollMin: time.Millisecond, PollMax: 10 * time.Millisecond,
				Breaker: outbox.Breaker{MinDelay: 10 * time.Millisecond, MaxDelay: 100 * time.Millisecond},
				Retry:   outbox.Retry{MaxAttempts: 3, BaseDelay: 10 * time.Millisecond, Jitter: -1},
			}, nil)
			row := func(key int, payload string) {
				r.Insert(outbox.Row{OrderingKey: fmt.Sprint("order-", key), Payload: []byte(payload)})
			}
			row(0, "poison")
			row(0, "{}")
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for began := time.Now(); r.Count("status = 'abandoned'") == 0; {
				<-tick.C
				row(1+int(hangups.Load()+time.Now().UnixNano())%50, "{}")
				require.Less(t, time.Since(began), time.Minute, "hung up %d times; %d open", hangups.Load(), r.Count("finished_at IS NULL"))
			}
			require.Eventually(t, func() bool { return r.Count("finished_at IS NULL") == 0 }, time.Minute, 10*time.Millisecond)
			assert.Equal(t, 1, r.Count("status = 'abandoned' AND attempts = 3 AND ordering_key = 'order-0'"))
			assert.Zero(t, r.Count("status = 'abandoned' AND attempts <> 3 OR status = 'published' AND attempts <> 1"))
			t.Logf("%d hang-ups, %d published", hangups.Load(), r.Count("status = 'published'"))
		})
	}
}
