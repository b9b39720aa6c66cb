package nats_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/config"
)

// configured is the broker of a section of the file.
func configured(t *testing.T, settings string) (brokers.Broker, error) {
	t.Helper()
	cfg, err := config.Parse([]byte("brokers: {default: {type: nats, "+settings+"}}\n"), "fanout.yaml", config.WithBrokerTypes(nats.Type()))
	if err != nil {
		return nil, err
	}
	b, err := cfg.Brokers["default"].Settings.Open(t.Context(), "default")
	if b != nil {
		t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	}
	return b, err
}

// What the file says reaches the server.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	waiting, err := configured(t, "url: '"+s.url+"', subject_prefix: shop.")
	require.NoError(t, err)
	message := []brokers.Message{numbered("ordering::order", "a", 1)}
	assert.Equal(t, []string{"unavailable destination"}, classes(waiting.Publish(t.Context(), message)))

	creating, err := configured(t, "url: '"+s.url+"', subject_prefix: shop., create_destinations: true, max_message_bytes: 70000, "+
		"stream: {replicas: 1, max_age: 2h, duplicate_window: 7m}")
	require.NoError(t, err)
	assert.Equal(t, []string{""}, classes(creating.Publish(t.Context(), message)))
	assert.Equal(t, 70000-32<<10, creating.Capabilities().MaxMessageBytes)
	stream, err := s.js.Stream(t.Context(), "shop+ordering+order")
	require.NoError(t, err)
	info := stream.CachedInfo().Config
	assert.Equal(t, 2*time.Hour, info.MaxAge)
	assert.Equal(t, 7*time.Minute, info.Duplicates)
}

// With a section tls nothing is said to a server in plain text, a password least of all; and where a
// server cannot be reached, the first question already has the reason.
func TestReasons(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	nobody, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	for settings, want := range map[string]string{
		"url: '" + s.url + "', tls: {}":                       "secure connection not available",
		"url: 'nats://u:hush@" + nobody.Addr().String() + "'": nobody.Addr().String() + ": connect: connection refused",
	} {
		b, err := configured(t, settings)
		require.NoError(t, err)
		err = b.Ping(t.Context())
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hush")
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		"url: 'nats://u:hush%zz@h'":                              "url: the URL is not understood",
		"url: 'nats://h', subject_prefix: '*.'":                  `subject_prefix: the subject prefix "*."`,
		"url: 'nats://h', max_message_bytes: 1000":               "max_message_bytes: is \"1000\": use 65537 to 67108864",
		"url: 'tls://u:hush@h', tls: {ca_file: /missing/ca.pem}": "nats: open: tls: ca_file: open /missing/ca.pem",
		"url: 'nats://h:99999'":                                  "url: the URL is not understood",
		"url: 'nats://h', credentials_file: /missing/creds":      "nats: open: the credentials file: open /missing/creds",
		"url: 'redis://u:hush@h'":                                "url: must begin with nats://, tls://, ws:// or wss://",
		"url: 'nats://h', stream: {replicas: 3}":                 "stream: does nothing without create_destinations: true",
		"create_destinations: true, stream: {replicas: 6}":       "url is missing: use nats://user:password@host:4222",
	} {
		_, err := configured(t, settings)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hush")
	}
}

// Any server of a cluster says which one it is.
func TestNATSPlaces(t *testing.T) {
	t.Parallel()
	for other, same := range map[string]bool{
		"url: 'nats://b:4222, nats://u:p@A'":             true,
		"url: 'tls://b'":                                 true,
		"url: 'nats://c'":                                false,
		"url: 'nats://a,nats://b', subject_prefix: out.": false,
	} {
		_, err := config.Parse([]byte("outbox: {external_brokers: [x]}\nbrokers: {default: {type: nats, url: 'nats://a,nats://b'}, x: {type: nats, "+other+"}}\n"),
			"fanout.yaml", config.WithBrokerTypes(nats.Type()))
		if same {
			require.ErrorContains(t, err, `brokers.x: is the same place as broker "default"`, other)
		} else {
			require.NoError(t, err, other)
		}
	}
}
