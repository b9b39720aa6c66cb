package redisstreams_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// What a call costs beside what go-redis does with the network: messages with all that ordinary
// ones have, and a server in memory that costs nothing. A message needs no allocation of
// its own.
func TestAllocationsOfAPublish(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	client.AddHook(yes{})
	below := 1
	for name, c := range map[string]struct {
		settings redisstreams.Settings
		keys     int
		want     float64 // for each further message
		fixed    float64
	}{
		"every key once":          {keys: 100, want: 0, fixed: 19},
		"keys many times":         {keys: 10, want: 0, fixed: 24},
		"keys many times, by age": {keys: 10, want: 0, fixed: 13, settings: redisstreams.Settings{MaxAge: time.Hour}},
		"the backfill":            {keys: 100, want: 0, fixed: 21, settings: redisstreams.Settings{BackfillBelow: &below}},
	} {
		t.Run(name, func(t *testing.T) {
			b := redisstreams.New(client, c.settings)
			measure := func(n int) float64 {
				msgs := many("s", n, c.keys)
				for i := range msgs {
					likeRealOnes(&msgs[i])
					msgs[i].ContentType = "text/plain"
				}
				return testenv.Allocations(20, func() {
					for _, result := range b.Publish(t.Context(), msgs) {
						if result.Err != nil || result.BrokerMessageID != "1-1" {
							t.Fatal(result)
						}
					}
				})
			}
			few, many := measure(50), measure(100)
			t.Logf("50 messages: %v allocations, 100: %v", few, many)
			require.InDelta(t, c.want, (many-few)/50, 0, "for each message")
			require.InDelta(t, c.fixed, many-100*c.want, 0, "for each call")
		})
	}
}

// yes answers everything in place of a server.
type yes struct{}

var manyIDs = slices.Repeat([]string{"1-1"}, 1000)

var manyAnswers = slices.Repeat([]any{"1-1"}, 1000)

func (yes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (yes) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return answer(cmd, 0) }
}

func (yes) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		added := 0
		for _, cmd := range cmds {
			if cmd.Name() == "multi" {
				added = 0
			}
			if err := answer(cmd, added); err != nil {
				return err
			}
			added++
		}
		return nil
	}
}

func answer(cmd redis.Cmder, added int) error {
	switch c := cmd.(type) {
	case *redis.StringCmd:
		c.SetVal("1-1")
	case *redis.StatusCmd:
		c.SetVal("OK")
	case *redis.SliceCmd: // of as many as there are XADDs in front of it
		c.SetVal(manyAnswers[:added-1])
	case *redis.StringSliceCmd:
		const header = 7
		n := 0
		for args := c.Args()[header:]; len(args) > 0; args = args[2+args[1].(int):] {
			n++
		}
		c.SetVal(manyIDs[:n])
	default:
		return fmt.Errorf("unexpected %s", cmd.Name())
	}
	return nil
}

func likeRealOnes(m *brokers.Message) {
	m.ID = uuid.NewString()
	m.Type = "Ordering.OrderPlaced.v1"
	m.CorrelationID = uuid.NewString()
	m.Payload = bytes.Repeat([]byte("x"), 500)
	m.Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
}
