package gcppubsub_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/config"
)

// opened is the broker of that name as a relay opens it.
func opened(t *testing.T, cfg *config.Config, name string) (brokers.Broker, error) {
	t.Helper()
	return fanout.OpenBroker(t.Context(), cfg, name, fanout.WithBrokerType(gcppubsub.Type()))
}

// TestSettings: what the file says about a broker of type pubsub reaches the server.
func TestSettings(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := newServer(t, grpc.StatsHandler(w))
	s.createTopic(t, "ordering.order")
	cfg, err := config.Parse([]byte(`
outbox: {external_brokers: [other]}
brokers:
  default: {type: pubsub, project: acme, endpoint: "`+s.addr+`", compression: 500}
  other: {type: pubsub, project: "Acme Inc", endpoint: "`+s.addr+`"}
`), "fanout.yaml")
	require.NoError(t, err)
	b, err := opened(t, cfg, "default")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	for size, want := range map[int]string{100: "", 1000: "gzip"} {
		m := message("ordering::order", "", 1)
		m.Payload = []byte(strings.Repeat("x", size))
		require.NoError(t, b.Publish(t.Context(), []brokers.Message{m})[0].Err)
		assert.Equal(t, want, w.take()[0].compression)
	}

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

func TestProblemsInSettings(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		"project: acme, compression: 0": `compression: is "0": use at least 1`,
		"compression: 500":              "project is missing: use the id of a Google Cloud project",
	} {
		_, err := config.Parse([]byte("brokers: {default: {type: pubsub, "+settings+"}}\n"), "f", config.WithBrokerTypes(gcppubsub.Type()))
		require.ErrorContains(t, err, want)
	}
	_, err := config.Parse([]byte("outbox: {external_brokers: [x]}\nbrokers: {default: {type: pubsub, project: a}, x: {type: pubsub, project: a}}\n"),
		"f", config.WithBrokerTypes(gcppubsub.Type()))
	require.ErrorContains(t, err, `brokers.x: is the same place as broker "default"`)
}
