package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/config"
)

const (
	hmacKey   = "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM="
	otherKey  = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	publicKey = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
	pemKey    = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n"
)

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
outbox: {external_brokers: [partner]}
brokers:
  default: {type: memory}
  partner: {type: memory, sign: {2026-11: "${KEY}", "2026-05": "${OLD}", 2025.10: "${OLD}", "vault.b": "${OLD}"}}
`, env("KEY", pemKey, "OLD", hmacKey))
	assert.Equal(t, map[string]config.Secret{"2026-11": pemKey, "2026-05": hmacKey, "2025.10": hmacKey, "vault.b": hmacKey}, cfg.Brokers["partner"].Sign)
	keys, err := cfg.SigningKeys("partner")
	require.NoError(t, err)
	m := brokers.Message{ID: "1", Type: "T", Destination: "s"}
	keys.Sign(&m, time.Unix(1795500000, 0))
	value := m.Attributes[0].Value
	assert.True(t, strings.HasPrefix(value, "t=1795500000 v1,2025.10,"), value)
	assert.Contains(t, value, " v1a,2026-11,")

	keys, err = cfg.SigningKeys("default")
	require.NoError(t, err)
	assert.Nil(t, keys)
	for _, printed := range everywhere(t, cfg.Brokers) {
		assert.NotContains(t, printed, "ZGVmZ2")
		assert.NotContains(t, printed, "MC4CAQAwBQYDK2VwBCIEIA")
	}
}

// The path is that of the key, and no message shows one, not where it stands in the place of its id either.
func TestProblemsInSigningKeys(t *testing.T) {
	t.Parallel()
	const form = "the key is not whsec_ and 32 to 64 bytes in base64, not whsk_ or whpk_ and a key of Ed25519 in base64, and not such a key in PEM"
	const (
		id     = "a key id has other characters than letters, digits, '.', '_' and '-', or has not 1 to 64 of them: write id: key"
		isAKey = "a key stands where its id should be: write id: key"
	)
	checkBadInputs(t, []badInput{{"all at once", `outbox: {external_brokers: [a, b, c, d, e, f]}
brokers:
  default: {type: memory, sign: {}}
  a: {type: memory, sign: {one: hunter2, two: whsec_aHVudGVyMg==, "${X}": x, ` + hmacKey[:40] + `: one, "a b": x, five: 5}}
  b: {type: memory, sign: {one: ` + publicKey + `}}
  c: {type: webhook, url: https://x, secrets: [` + whsecA + `], sign: {one: ` + hmacKey + `}}
  d: {type: memory, sign: [` + hmacKey + `]}
  e: {type: memory, sign: {a: ` + hmacKey + `, b: ` + hmacKey + `, c: ` + hmacKey + `, d: ` + otherKey + `, e: ` + otherKey + `}}
  f: {type: memory, sign: {one: ""}}
`, []string{
		"3:33: brokers.default.sign: is empty: name a key by its id, as in 2026-11: ${PARTNER_KEY}, or remove it",
		"4:33: brokers.a.sign.one: " + form,
		"4:47: brokers.a.sign.two: " + form,
		"4:67: brokers.a.sign: " + id,
		"4:78: brokers.a.sign: " + isAKey,
		"4:125: brokers.a.sign: " + id,
		"4:141: brokers.a.sign.five: is a number: put it in quotes to use it as text",
		"5:33: brokers.b.sign.one: it is public, and can only verify: give the private key",
		"6:89: brokers.c.sign: does nothing for a broker of type webhook, which signs each message with its secrets: remove it",
		"7:27: brokers.d.sign: must be a mapping of keys, but is a list",
		"8:27: brokers.e.sign: there are 5 keys to sign with: give 1 to 4, the new one and, while partners change over, the old one",
		"9:33: brokers.f.sign.one: is empty: give it a value, or remove it",
	}}})
}

func TestErrorsKeepSigningKeys(t *testing.T) {
	t.Parallel()
	for _, value := range []string{hunter, "whsec_" + hunter, "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----", "whsk_hunter2==", "a\nhunter2: {"} {
		for _, source := range []string{"sign: {one: '${X}'}", "sign: {'${X}': one}", "sign: '${X}'", "sign: ['${X}']", "sign: {one: {two: '${X}'}}"} {
			_, err := parsed([]byte("brokers: {default: {type: memory, "+source+"}}"), "f", env("X", value))
			require.ErrorContains(t, err, "brokers.default.sign")
			assert.NotContains(t, err.Error(), hunter)
		}
	}
	_, err := parsed([]byte("brokers: {default: {type: memory, sign: {whsec_hunter2: one}}}"), "f")
	require.ErrorContains(t, err, "brokers.default.sign: a key stands where its id should be")
	assert.NotContains(t, err.Error(), hunter)
}

// A configuration that was made in Go is checked likewise.
func TestValidateSigningKeys(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{
		Outbox: config.Outbox{ExternalBrokers: []string{"a", "b"}},
		Brokers: map[string]config.Broker{
			"default": {Sign: map[string]config.Secret{"one": hunter}},
			"a":       {Sign: map[string]config.Secret{"one": publicKey}},
			"b":       {Settings: &webhook.Settings{URL: "https://h", Secrets: []config.Secret{whsecA}}, Sign: map[string]config.Secret{"one": hmacKey}},
		},
	}
	err := cfg.Validate()
	require.ErrorContains(t, err, `brokers.default.sign: key "one": the key is not whsec_`)
	require.ErrorContains(t, err, `brokers.a.sign: key "one": it is public, and can only verify: give the private key`)
	require.ErrorContains(t, err, "brokers.b.sign: does nothing for a broker of type webhook, which signs each message with its secrets: remove it")
	assert.NotContains(t, err.Error(), hunter)
	_, err = cfg.SigningKeys("default")
	require.ErrorContains(t, err, `signature: key "one": the key is not`)
}
