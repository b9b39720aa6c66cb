package relay_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// picky is a broker that takes no attributes.
type picky struct{ fake }

func (p *picky) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	results := p.fake.Publish(ctx, messages)
	for i := range messages {
		for _, a := range messages[i].Attributes {
			results[i].Omitted = append(results[i].Omitted, a.Name)
		}
	}
	return results
}

// Messages that went without some of their attributes are published, and the observer is notified of
// it; not for each message.
func TestProcessorTellsWhatWasOmitted(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var log bytes.Buffer
		broker := &picky{fake{publish: func(context.Context, brokers.Message) error { return nil }}}
		r := newRig(t, path, broker, outbox.Policy{})
		proc, err := relay.NewProcessor(relay.ProcessorConfig{
			Database: "test", Broker: "b", Store: r.store, Target: broker, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		r.proc = proc
		headers := `{"a` + strings.Repeat("a", 2000) + `":"x","b":"x","c":"x","d":"x","e":"x","f":"x"}`
		for n := range 20 {
			_, err := r.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, headers, available_at, payload) VALUES (?, 'b', 's', 'T', ?, ?, ?)`,
				uuid.NewString(), headers, time.Now().Add(time.Duration(n)*5*time.Second).UnixMicro(), []byte("m"))
			require.NoError(t, err)
		}
		r.start()
		r.until(5*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		require.NoError(t, r.db.Close())
		assert.Len(t, broker.delivered(), 20)
		lines := strings.Count(log.String(), "attributes omitted")
		assert.Equal(t, 2, lines, log.String())
		assert.Contains(t, log.String(), "omitted=6")
		assert.Less(t, len(log.String()), 2000)
	})
}
