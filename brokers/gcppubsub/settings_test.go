package gcppubsub_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
)

// opened is the broker of that name as a relay opens it.
func opened(t *testing.T, cfg *config.Config, name string) (brokers.Broker, error) {
	t.Helper()
	return fanout.OpenBroker(t.Context(), cfg, name, fanout.WithBrokerType(gcppubsub.Type()))
}

// compressions collects how requests came. It is a [stats.Handler].
type compressions struct {
	mu   sync.Mutex
	seen []string
}

func (*compressions) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (*compressions) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*compressions) HandleConn(context.Context, stats.ConnStats)                       {}

func (c *compressions) HandleRPC(_ context.Context, event stats.RPCStats) {
	if header, begins := event.(*stats.InHeader); begins {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen = append(c.seen, header.Compression)
	}
}

func (c *compressions) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

// TestSettings: what the file says about a broker of type pubsub reaches the server.
func TestSettings(t *testing.T) {
	t.Parallel()
	fake, seen := pstest.NewServer(), &compressions{}
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	_, err := fake.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/acme/topics/ordering.order"})
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.StatsHandler(seen))
	pubsubpb.RegisterPublisherServer(server, &fake.GServer)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	cfg, err := config.Parse([]byte(`
outbox: {external_brokers: [other]}
brokers:
  default: {type: pubsub, project: acme, endpoint: "`+listener.Addr().String()+`", compression: 500}
  other: {type: pubsub, project: "Acme Inc", endpoint: "`+listener.Addr().String()+`"}
`), "fanout.yaml")
	require.NoError(t, err)
	b, err := opened(t, cfg, "default")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	for _, size := range []int{100, 1000} {
		results := b.Publish(t.Context(), []brokers.Message{
			{ID: "1", Destination: "ordering::order", Type: "T.v1", Payload: []byte(strings.Repeat("x", size))},
		})
		require.NoError(t, results[0].Err)
	}
	assert.Equal(t, []string{"", "gzip"}, seen.all())
	assert.Len(t, fake.Messages(), 2)

	_, err = opened(t, cfg, "other")
	require.ErrorContains(t, err, `fanout: broker "other": gcppubsub: open project "Acme Inc": this is not the id of a project`)
}

// TestEndpoints: emulators need no credentials, whatever else is behind an endpoint does.
func TestEndpoints(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "missing.json"))
	for endpoint, emulator := range map[string]bool{
		"localhost:8085": true, "pubsub-emulator": true,
		"europe-west1-pubsub.googleapis.com:443": false, "pubsub.googleapis.com": false, "pubsub.acme.internal:443": false,
	} {
		cfg, err := config.Parse([]byte("brokers: {default: {type: pubsub, project: acme, endpoint: '"+endpoint+"'}}\n"), "fanout.yaml")
		require.NoError(t, err)
		b, err := opened(t, cfg, "default")
		if !emulator {
			require.ErrorContains(t, err, "missing.json", endpoint)
			continue
		}
		require.NoError(t, err, endpoint)
		require.NoError(t, b.Close(t.Context()))
	}
}

// What is wrong with a section is said with its line.
func TestProblemsInSettings(t *testing.T) {
	t.Parallel()
	_, err := config.Parse([]byte(`outbox: {external_brokers: [a, b, c]}
brokers:
  default: {type: pubsub, project: acme, compression: 0}
  a: {type: pubsub, projet: else, compression: gzip}
  b: {type: memory, compression: 240}
  c: {type: pubsub, project: acme}
`), "f", config.WithBrokerTypes(gcppubsub.Type(), memory.Type()))
	require.EqualError(t, err, `f:3:55: brokers.default.compression: is "0": use at least 1
f:4:3: brokers.a: project is missing: use the id of a Google Cloud project
f:4:21: brokers.a: unknown key "projet": did you mean "project"?
f:4:48: brokers.a.compression: must be a whole number in plain digits, without quotes
f:5:21: brokers.b.compression: does nothing for a broker of type memory: remove it
f:6:3: brokers.c: is the same place as broker "default": both would write to the same streams; use another project, or a destination such as partner.{stream}`)
}
