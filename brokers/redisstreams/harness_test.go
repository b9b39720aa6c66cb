package redisstreams_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // failed dials are what these tests are about
	goleak.VerifyTestMain(m,
		// Looks once a second whether the server is back; after Close it ends the next time it
		// wakes up.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("shared", func(t *testing.T) { // a server that others use at the same time: it cannot be stopped
		t.Parallel()
		brokertest.Run(t, harness(t, testenv.Redis(t), testenv.RedisPrefix(t)))
	})
	t.Run("process", func(t *testing.T) { // a server of our own
		t.Parallel()
		server := startServer(t)
		h := harness(t, server.url(), "")
		h.Stop = server.kill
		h.Start = server.start
		h.Network, h.OpenThroughNetwork = network(t, server.addr())
		brokertest.Run(t, h)
	})
	t.Run("transactions", func(t *testing.T) { // from the first call on
		t.Parallel()
		server := startServer(t)
		h := harness(t, server.url(), "")
		h.Stop = server.kill
		h.Start = server.start
		var through func(*testing.T) brokers.Broker
		h.Network, through = network(t, server.addr())
		open := h.Open
		h.Open = func(t *testing.T) brokers.Broker {
			return redisstreams.KnowTransactions(open(t).(*redisstreams.Broker))
		}
		h.OpenThroughNetwork = func(t *testing.T) brokers.Broker {
			return redisstreams.KnowTransactions(through(t).(*redisstreams.Broker))
		}
		brokertest.Run(t, h)
	})
}

// harness reaches the server at url.
func harness(t *testing.T, url, prefix string, settings ...redisstreams.Settings) brokertest.Harness {
	t.Helper()
	var (
		refusal refusal
		number  atomic.Int64
	)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	reader := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, reader.Close()) })
	// A limit of the broker's own keeps the test from making a payload of half a gigabyte.
	s := one(url, settings)
	s.MaxMessageBytes = 1 << 20

	return brokertest.Harness{
		Open: func(t *testing.T) brokers.Broker {
			b, err := redisstreams.Open(s)
			require.NoError(t, err)
			b.Client().AddHook(&refusal)
			return b
		},
		Destination: func(*testing.T) string { return fmt.Sprintf("%sordering::order%d", prefix, number.Add(1)) },
		Received: func(t *testing.T, destination string) []brokers.Message {
			return received(t, reader, destination)
		},
		Refuse: func(_ *testing.T, id string) (restore func()) {
			refusal.ids.Store(id, struct{}{})
			return func() { refusal.ids.Delete(id) }
		},
	}
}

// network returns a network in front of the server at an address, and what opens brokers behind it.
func network(t *testing.T, addr string, settings ...redisstreams.Settings) (brokertest.Network, func(*testing.T) brokers.Broker) {
	t.Helper()
	proxy := toxic.Start(t, addr)
	return proxy, func(t *testing.T) brokers.Broker {
		b, err := redisstreams.Open(one("redis://"+proxy.Addr(t), settings))
		require.NoError(t, err)
		return b
	}
}

// received reads a stream as a consumer does.
func received(t *testing.T, client redis.UniversalClient, stream string) []brokers.Message {
	t.Helper()
	// XRange of go-redis would lose the order of the fields, and with it that data comes first.
	reply, err := client.Do(context.Background(), "XRANGE", stream, "-", "+").Slice()
	require.NoError(t, err)
	messages := make([]brokers.Message, len(reply))
	for i, entry := range reply {
		fields := entry.([]any)[1].([]any)
		messages[i].Destination, messages[i].ContentType = stream, brokers.DefaultContentType
		require.Equal(t, "data", fields[0], "data is the first field")
		for ; len(fields) > 0; fields = fields[2:] {
			name, value := fields[0].(string), fields[1].(string)
			switch m := &messages[i]; name {
			case "data":
				m.Payload = []byte(value)
			case brokers.FieldID:
				m.ID = value
			case brokers.FieldType:
				m.Type = value
			case brokers.FieldOrderingKey:
				m.OrderingKey = value
			case brokers.FieldCorrelationID:
				m.CorrelationID = value
			case brokers.FieldContentType:
				m.ContentType = value
			default:
				m.Attributes = append(m.Attributes, brokers.Attribute{Name: name, Value: value})
			}
		}
	}
	return messages
}

// refusal makes the server refuse messages: it takes arguments off their XADD, on the way to the
// server or the script. So the error is the server's, and comes up inside the transaction or the script.
type refusal struct{ ids sync.Map }

func (r *refusal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		spoilt, restore := r.spoil(ctx, cmd)
		defer restore()
		return next(ctx, spoilt)
	}
}

func (r *refusal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		spoilt := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			var restore func()
			spoilt[i], restore = r.spoil(ctx, cmd)
			defer restore()
		}
		return next(ctx, spoilt)
	}
}

// spoil returns the command to send instead of cmd; restore brings its answer into cmd.
func (r *refusal) spoil(ctx context.Context, cmd redis.Cmder) (spoilt redis.Cmder, restore func()) {
	switch call := cmd.(type) {
	case *redis.StringCmd: // one XADD: it names the id behind *, data and the payload
		args := call.Args()
		star := slices.Index(args, any("*"))
		if cmd.Name() != "xadd" || star < 0 || !r.refuses(args[star+4]) {
			return cmd, func() {}
		}
		instead := redis.NewStringCmd(ctx, args[:4]...) // refused as it is queued, in a transaction
		return instead, func() {
			call.SetVal(instead.Val())
			call.SetErr(instead.Err())
		}
	case *redis.StringSliceCmd:
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return cmd, func() {}
		}
		instead := redis.NewStringSliceCmd(ctx, r.spoilScript(call.Args())...)
		return instead, func() {
			call.SetVal(instead.Val())
			call.SetErr(instead.Err())
		}
	default:
		return cmd, func() {}
	}
}

func (r *refusal) refuses(id any) bool {
	_, refused := r.ids.Load(*id.(*string))
	return refused
}

func (r *refusal) spoilScript(whole []any) []any {
	const header = 7 // as xadd.lua documents, behind EVALSHA, the digest, 1 and the stream
	args := slices.Clone(whole[:header])
	for rest := whole[header:]; len(rest) > 0; {
		count := rest[1].(int)
		one := slices.Clone(rest[:2+count])
		if r.refuses(one[5]) { // data, payload, id, <id>
			one = one[:len(one)-1]
			one[1] = count - 1
		}
		args, rest = append(args, one...), rest[2+count:]
	}
	return args
}
