package relay

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// signingKeys are one key of Ed25519, of the producer and of a partner.
func signingKeys(t *testing.T) *signature.Keys {
	t.Helper()
	keys := new(signature.Keys)
	require.NoError(t, keys.Add("2026-11", "whsk_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))))
	return keys
}

// Each attempt of each message is signed when it is made, one that is repeated alone included, whatever
// the row says; and the row says nothing of it.
func TestProcessorSigns(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		keys := signingKeys(t)
		began := time.Now()
		var attempts []time.Duration
		broker := memory.New()
		broker.Fail = func(m brokers.Message) error {
			attributes := map[string]string{}
			for name, value := range m.Fields {
				assert.NotContains(t, attributes, name, "each field once")
				attributes[name] = value
			}
			signed, err := keys.Verify("s", attributes, m.Payload)
			assert.NoError(t, err)
			if string(m.Payload) == "late" {
				attempts = append(attempts, signed.Sub(began).Round(time.Minute))
				if len(attempts) < 3 {
					return brokers.Retryable(assert.AnError)
				}
			}
			return nil
		}
		policy := outbox.Policy{Retry: outbox.Retry{BaseDelay: 2 * time.Minute, MaxDelay: 2 * time.Minute, Jitter: -1}}
		r := newRig(t, path, broker, policy, func(c *ProcessorConfig) { c.Sign = keys })
		r.insert(row{key: "k", name: "late"}, row{name: "forged", headers: `{"a":"1","signature":"forged"}`})
		r.fill(20, loose("other"))
		r.start()
		r.drained(20 * time.Minute)
		assert.Equal(t, []time.Duration{0, 2 * time.Minute, 4 * time.Minute}, attempts)
		assert.Len(t, broker.Messages("s"), 22)
		assert.Zero(t, r.count("headers LIKE '%v1a%' OR last_error LIKE '%v1a%'"))
	})
}

// A processor that could not sign is not made.
func TestProcessorNeedsKeysThatSign(t *testing.T) {
	t.Parallel()
	public := new(signature.Keys)
	require.NoError(t, public.Add("2026-11", "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="))
	for want, keys := range map[string]*signature.Keys{
		`broker "b": signature: key "2026-11": it is public`:           public,
		`broker "b": signature: there are 0 keys to sign with: give 1`: new(signature.Keys),
	} {
		_, err := NewEngine(EngineConfig{
			Stores: map[string]driver.Delivery{"test": stub{}}, Brokers: map[string]Target{"b": {Broker: taker{}, Sign: keys}},
		})
		require.ErrorContains(t, err, want)
	}
}
