package kafka_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/config"
)

// configured is the broker of a section of the file.
func configured(t *testing.T, settings string) (brokers.Broker, error) {
	t.Helper()
	cfg, err := config.Parse([]byte("brokers: {default: {type: kafka, "+settings+"}}\n"), "fanout.yaml", config.WithBrokerTypes(kafka.Type()))
	if err != nil {
		return nil, err
	}
	b, err := cfg.Brokers["default"].Settings.Open(t.Context(), "default")
	if b != nil {
		t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	}
	return b, err
}

// What the file says reaches the cluster.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		c := startCluster(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "relay", "hush"))
		login := "bootstrap_servers: '127.0.0.1:1, " + c.seeds()[0] + "', sasl: {mechanism: " + mechanism + ", username: relay, password: "
		message := []brokers.Message{numbered("ordering::order", "a", 1)}

		waiting, err := configured(t, login+"hush}")
		require.NoError(t, err)
		assert.Equal(t, []string{"unavailable destination"}, classes(waiting.Publish(t.Context(), message)))

		creating, err := configured(t, login+"hush}, create_destinations: true, topics: {partitions: 5, replicas: 1}, max_message_bytes: 70000")
		require.NoError(t, err)
		assert.Equal(t, []string{""}, classes(creating.Publish(t.Context(), message)))
		assert.Equal(t, 70000-8<<10, creating.Capabilities().MaxMessageBytes)

		refuse(c.fake, mechanism == "PLAIN")
		locked, err := configured(t, login+"loud}")
		require.NoError(t, err)
		results := locked.Publish(t.Context(), []brokers.Message{message[0], numbered("ordering::order", "b", 2)})
		assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results))
		require.ErrorContains(t, results[0].Err, "check user, password and mechanism of SASL")
		assert.NotContains(t, results[0].Err.Error(), "loud")
	}
}

// Tokens come from the endpoint, are used again, and go to the cluster; an endpoint that gives none is an
// outage, whose error does not show the secret.
func TestTokens(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	var closed atomic.Bool
	var away atomic.Value // where to else
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if to := away.Load(); to != nil {
			w.Header().Set("Location", to.(string))
			w.WriteHeader(http.StatusTemporaryRedirect)
			_, _ = io.WriteString(w, strings.Repeat("long ", 10_000))
			return
		}
		id, secret, _ := r.BasicAuth()
		if closed.Load() || id != "relay" || secret != "hush" || r.PostFormValue("grant_type") != "client_credentials" || r.PostFormValue("scope") != "kafka" {
			http.Error(w, `{"error": "invalid_client"}`, http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token": "open sesame", "token_type": "bearer", "expires_in": 3600}`)
	}))
	t.Cleanup(endpoint.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: endpoint.Certificate().Raw})
	require.NoError(t, os.WriteFile(authority, certificate, 0o600))

	keyPair := endpoint.TLS.Certificates[0]
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "ordering.order"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{keyPair}}))
	var tokens atomic.Int32
	c.fake.ControlKey(int16(kmsg.SASLHandshake), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		return request.ResponseKind(), nil, true
	})
	c.fake.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		if strings.Contains(string(request.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes), "auth=Bearer open sesame") {
			tokens.Add(1)
		}
		return request.ResponseKind(), nil, true
	})
	settings := func(secret string) string {
		return "bootstrap_servers: '" + c.seeds()[0] + "', tls: {ca_file: " + authority + "}, sasl: {mechanism: OAUTHBEARER, token_url: '" +
			endpoint.URL + "/token', client_id: relay, client_secret: " + secret + ", scopes: [kafka]}"
	}
	b, err := configured(t, settings("hush"))
	require.NoError(t, err)
	assert.Equal(t, []string{""}, classes(b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 1)})))
	assert.Greater(t, tokens.Load(), int32(1), "connections")
	assert.EqualValues(t, 1, asked.Load(), "tokens")

	closed.Store(true)
	locked, err := configured(t, settings("loud"))
	require.NoError(t, err)
	results := locked.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "b", 2), numbered("ordering::order", "c", 3)})
	assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results))
	require.ErrorContains(t, results[0].Err, "invalid_client")
	assert.NotContains(t, results[0].Err.Error(), "loud")

	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the secret went to %s", r.Host) }))
	t.Cleanup(elsewhere.Close)
	away.Store(elsewhere.URL)
	led, err := configured(t, settings("hush"))
	require.NoError(t, err)
	results = led.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "d", 4)})
	assert.Equal(t, []string{"unavailable broker"}, classes(results))
	assert.Less(t, len(results[0].Err.Error()), 1500)
}

// refuse lets a cluster answer as Kafka does when a password is wrong or, without it, when it has no
// such mechanism; a fake one hangs up.
func refuse(fake *kfake.Cluster, password bool) {
	fake.ControlKey(int16(kmsg.SASLHandshake), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		answer := request.ResponseKind().(*kmsg.SASLHandshakeResponse)
		answer.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		return answer, nil, !password
	})
	fake.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		answer := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return answer, nil, true
	})
}

func TestSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		"bootstrap_servers: 'kafka://u:hush@h'":                                                                          "bootstrap_servers: a bootstrap server is host:port, without scheme",
		"bootstrap_servers: 'h:90921'":                                                                                   `bootstrap_servers: bootstrap server "h:90921" is not host:port`,
		"bootstrap_servers: 'h,,i'":                                                                                      `bootstrap_servers: bootstrap server "" is not host:port`,
		"bootstrap_servers: h, max_message_bytes: 1000":                                                                  "max_message_bytes: is \"1000\": use 16384 to 67108864",
		"bootstrap_servers: h, tls: {ca_file: /missing/ca.pem}":                                                          "kafka: open: tls: ca_file: open /missing/ca.pem",
		"bootstrap_servers: h, tls: {cert_file: /no.pem, key_file: /no}":                                                 "kafka: open: tls: cert_file and key_file: open /no.pem",
		"sasl: {mechanism: PLAIN}":                                                                                       "bootstrap_servers is missing: use kafka-1:9092,kafka-2:9092",
		"bootstrap_servers: h, sasl: {mechanism: PLAIN, username: u}":                                                    "mechanism, username and password are all required",
		"bootstrap_servers: h, topics: {partitions: 3}":                                                                  "topics: does nothing without create_destinations: true",
		"bootstrap_servers: h, sasl: {mechanism: PLAIN, username: u, password: hush, scopes: [s]}":                       "scopes: does nothing with mechanism PLAIN: remove it",
		"bootstrap_servers: h, sasl: {mechanism: OAUTHBEARER, token_url: 'http://h', client_id: r, client_secret: hush}": "token_url: must begin with https://",
		"bootstrap_servers: h, sasl: {mechanism: OAUTHBEARER, token_url: 'https://h', client_id: r, client_secret: hush, password: hush}": "password: does nothing with mechanism OAUTHBEARER",
	} {
		_, err := configured(t, settings)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hush")
	}
}

// Any server of a cluster says which one it is.
func TestKafkaPlaces(t *testing.T) {
	t.Parallel()
	for other, same := range map[string]bool{"b:9092, A": true, "a": true, "b:9093,a:9092": true, "a:9093": false, "c": false} {
		_, err := config.Parse([]byte("outbox: {external_brokers: [x]}\nbrokers: {default: {type: kafka, bootstrap_servers: 'a,b'}, x: {type: kafka, bootstrap_servers: '"+
			other+"'}}\n"), "fanout.yaml", config.WithBrokerTypes(kafka.Type()))
		if same {
			require.ErrorContains(t, err, `brokers.x: is the same place as broker "default"`, other)
		} else {
			require.NoError(t, err, other)
		}
	}
}
