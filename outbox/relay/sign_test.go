package relay_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
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
		r := newRig(t, path, broker, outbox.Policy{})
		proc, err := relay.NewProcessor(relay.ProcessorConfig{
			Database: "test", Broker: "b", Store: r.store, Target: broker, Sign: keys, Log: slog.New(slog.DiscardHandler),
			Policy: outbox.Policy{Retry: outbox.Retry{BaseDelay: 2 * time.Minute, MaxDelay: 2 * time.Minute, Jitter: -1}},
		})
		require.NoError(t, err)
		r.proc = proc
		r.insert("k", "late")
		for range 20 {
			r.insert("", "other")
		}
		_, err = r.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, headers, payload) VALUES (?, 'b', 's', 'T', ?, ?)`,
			uuid.NewString(), `{"a":"1","signature":"forged"}`, []byte("forged"))
		require.NoError(t, err)
		r.start()
		r.until(20*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, []time.Duration{0, 2 * time.Minute, 4 * time.Minute}, attempts)
		assert.Len(t, broker.Messages("s"), 22)
		assert.Equal(t, "0", r.query("SELECT count(*) FROM outbox_messages WHERE headers LIKE '%v1a%' OR last_error LIKE '%v1a%'"))
		require.NoError(t, r.db.Close())
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
		_, err := relay.NewProcessor(relay.ProcessorConfig{Database: "test", Broker: "b", Store: &sameBatch{}, Target: taker{}, Sign: keys})
		require.ErrorContains(t, err, want)
	}
	_, err := relay.NewEngine(relay.EngineConfig{
		Stores: map[string]driver.Delivery{"test": &sameBatch{}}, Brokers: map[string]relay.Target{"b": {Broker: taker{}, Sign: public}},
	})
	require.ErrorContains(t, err, `key "2026-11": it is public`)
}

// A call that is not signed has the attributes of its rows alone, as ever.
func TestProcessorDoesNotSignUnasked(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var attributes []brokers.Attribute
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error { attributes = m.Attributes; return nil }}
		r := start(t, path, broker, outbox.Policy{})
		r.insert("", "m")
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Empty(t, attributes)
	})
}
