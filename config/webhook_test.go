package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/config"
)

const (
	whsecA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	whsecB = "whsec_AfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

func TestWebhookSettings(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `outbox: {external_brokers: [a]}
brokers:
  default: {type: webhook, url: https://x/hooks, secrets: [`+whsecA+`]}
  a: {type: webhook, url: "https://u:p@y:8080", secrets: [`+whsecB+`, `+whsecA+`], allow_http: true, allow_private_networks: true, concurrency: 2, request_timeout: 3s,
      max_message_bytes: 100000, tls: {ca_file: ca.pem}}
`)
	assert.Equal(t, &webhook.Settings{URL: "https://x/hooks", Secrets: []config.Secret{whsecA}}, cfg.Brokers["default"].Settings)
	assert.Equal(t, &webhook.Settings{
		URL: "https://u:p@y:8080", Secrets: []config.Secret{whsecB, whsecA}, AllowHTTP: true, AllowPrivateNetworks: true, Concurrency: 2,
		RequestTimeout: 3 * time.Second, MaxMessageBytes: 100000, TLS: &adapter.TLS{CAFile: "ca.pem"},
	}, cfg.Brokers["a"].Settings)
}

func TestProblemsInWebhookSettings(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox: {external_brokers: [a, b, c, d]}
brokers:
  default: {type: webhook, url: http://x, secrets: whsec_hush, concurrency: 300, request_timeout: 0s, create_destinations: true}
  a: {type: webhook, allow_http: 1}
  b: {type: redis, url: redis://x, secrets: [a], allow_http: true}
  d: {type: webhook, url: https://x/hooks/d, secrets: [` + whsecA + `], request_timeout: 15001ms, publish_timeout: 15s}
  c: {type: webhook, url: http://x/hooks, secrets: [5], allow_private_networks: false, allow_http: true, tls: {}}
`, []string{
			"3:33: brokers.default.url: the URL begins with http://, so that anyone on the path could read what is sent: use https://, or allow it (allow_http)",
			"3:52: brokers.default.secrets: must be a list, as in [a, b], but is a text",
			`3:77: brokers.default.concurrency: is "300": use 1 to 256`,
			`3:99: brokers.default.request_timeout: is "0s": use a positive duration`,
			"3:103: brokers.default.create_destinations: does nothing for a broker of type webhook: remove it",
			"4:3: brokers.a: url is missing: use https://partner.example/hooks",
			"4:3: brokers.a: secrets is missing: use [whsec_...]",
			"4:34: brokers.a.allow_http: must be true or false",
			"5:36: brokers.b.secrets: does nothing for a broker of type redis: remove it",
			"5:50: brokers.b.allow_http: does nothing for a broker of type redis: remove it",
			"6:114: brokers.d.request_timeout: is 15.001s, longer than publish_timeout (15s), which ends the request before",
			"7:53: brokers.c.secrets[0]: is a number: put it in quotes to use it as text",
			"7:106: brokers.c.tls: does nothing without TLS: let url begin with https://, or remove it",
		}},
		{"schemes and secrets", `outbox: {external_brokers: [a]}
brokers:
  default: {type: redis, url: redis://x}
  a: {type: webhook, url: ftp://x/hooks, secrets: [hunter2]}
`, []string{
			"4:27: brokers.a.url: must begin with https://",
			`4:51: brokers.a.secrets: secret 1 is not "whsec_" and 24 to 64 bytes in base64: make one with "echo whsec_$(openssl rand -base64 32)"`,
		}},
	})
}

// Partners' webhooks may share an endpoint, each with its filter and secret; the internal broker's own
// belongs to no one else.
func TestWebhookPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b, internal, external string
		same                     bool
	}{
		{"https://x/hooks", "https://u:p@X:443/hooks", "a", "b, c", true},
		{"https://x/hooks", "https://x/hooks", "b", "a, c", true},
		{"https://x/hooks", "https://x/other", "a", "b, c", false},
		{"https://x/hooks?tenant=1", "https://x/hooks?tenant=2", "a", "b, c", false},
		{"https://x/hooks", "https://x/hooks", "c", "a, b", false},
	} {
		_, err := parsed([]byte(`outbox: {internal_broker: `+c.internal+`, external_brokers: [`+c.external+`]}
brokers:
  a: {type: webhook, url: "`+c.a+`", secrets: [`+whsecA+`]}
  b: {type: webhook, url: "`+c.b+`", secrets: [`+whsecB+`]}
  c: {type: redis, url: redis://x}
`), "f")
		if c.same {
			require.ErrorContains(t, err, `brokers.b: is the same place as broker "a"`, c)
		} else {
			require.NoError(t, err, c)
		}
	}
}
