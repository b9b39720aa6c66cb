package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// What a decoder answers decides, and what is wrong with it costs its message alone.
func TestDecoderDecides(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)
	raw := &inbox.RawMessage{Payload: []byte(placed), OrderingKey: "k", Source: "orders", Position: "0/7", Published: at}
	answering := func(event *envelope.CloudEvent, err error) inbox.Decoder {
		return func(*inbox.RawMessage) (*envelope.CloudEvent, error) { return event, err }
	}

	for _, none := range []inbox.Decoder{nil, answering(nil, nil)} {
		m, err := none.Decode(raw)
		require.NoError(t, err)
		assert.Equal(t, "Shop.OrderPlaced.v1", m.Type, "it is read as ever")
	}

	event := &envelope.CloudEvent{ID: "7", Type: "T", Data: []byte(`{"a":1}`)}
	m, err := answering(event, nil).Decode(raw)
	require.NoError(t, err)
	assert.Equal(t, []any{"7", "T", "k", inbox.KeyOf("orders", "7")}, []any{m.ID, m.Type, m.OrderingKey, m.Key})
	assert.Equal(t, at, m.Envelope.Metadata.Headers.Time)
	assert.JSONEq(t, `{"a":1}`, string(m.Envelope.Data))
	assert.Equal(t, raw.Payload, m.Payload)
	assert.Empty(t, event.Source, "the decoder's own event stays as it is")
	event.PartitionKey, event.Source = "other", "/db"
	m, err = answering(event, nil).Decode(raw)
	require.NoError(t, err)
	assert.Equal(t, []any{"k", inbox.KeyOf("/db", "7")}, []any{m.OrderingKey, m.Key})
	without := *raw
	without.OrderingKey = ""
	m, err = answering(event, nil).Decode(&without)
	require.NoError(t, err)
	assert.Equal(t, "other", m.OrderingKey)

	event.Data = []byte(" null\n")
	m, err = answering(event, nil).Decode(raw)
	require.NoError(t, err, "no data, as of a row that is gone: its type may be ignored")
	assert.Nil(t, m.Envelope.Data)

	for text, event := range map[string]envelope.CloudEvent{
		"has no ID":               {Type: "T"},
		"has no Type":             {ID: "7"},
		"a ID of 600 bytes":       {ID: strings.Repeat("7", 600), Type: "T"},
		"a Type of 600 bytes":     {ID: "7", Type: strings.Repeat("7", 600)},
		"a PartitionKey of 600":   {ID: "7", Type: "T", PartitionKey: strings.Repeat("7", 600)},
		"Type that is not valid":  {ID: "7", Type: "\xff"},
		"has data that is not JS": {ID: "7", Type: "T", Data: []byte(`{"a":1,"a":2}`)},
	} {
		_, err := answering(&event, nil).Decode(raw)
		assert.ErrorContains(t, err, text)
	}
	_, err = inbox.Decoder(func(*inbox.RawMessage) (*envelope.CloudEvent, error) { panic("no") }).Decode(raw)
	require.EqualError(t, err, "inbox: the decoder panicked: no")
	_, err = answering(nil, inbox.ErrSkip).Decode(raw)
	require.ErrorIs(t, err, inbox.ErrSkip)
}

// The key under which a message is kept that cannot be read is its own, whatever id it says.
func TestUnreadableKey(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	raw := inbox.RawMessage{Payload: []byte("x"), Attributes: map[string]string{"a": "1"}, OrderingKey: "k", Source: "orders", Published: time.UnixMilli(1)}
	key := inbox.UnreadableKey(&raw, id)
	assert.Equal(t, key, inbox.UnreadableKey(&raw, id), "when it comes again")
	others := []uuid.UUID{inbox.UnreadableKey(&raw, ""), inbox.KeyOf("orders", id), uuid.MustParse(id)}
	for _, change := range []func(*inbox.RawMessage){
		func(m *inbox.RawMessage) { m.Payload = []byte("y") },
		func(m *inbox.RawMessage) { m.Attributes = map[string]string{"a": "2"} },
		func(m *inbox.RawMessage) { m.OrderingKey = "l" },
		func(m *inbox.RawMessage) { m.Source = "others" },
		func(m *inbox.RawMessage) { m.Published = time.UnixMilli(2) },
	} {
		other := raw
		change(&other)
		others = append(others, inbox.UnreadableKey(&other, id))
	}
	assert.NotContains(t, others, key)
}

// A type is skipped whatever its messages hold, unless another version of it is handled, or unknown
// types are rejected.
func TestSkips(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	do := func(*gorm.DB, json.RawMessage, *inbox.Message) error { return nil }
	lax, strict := inbox.NewHandlers(p.db, p.at()), inbox.NewHandlers(p.db, p.at(), inbox.WithRejectUnknown())
	for _, h := range []*inbox.Handlers{lax, strict} {
		inbox.On(h, "A.v1", do)
		h.Ignore("Ignored")
		assert.Equal(t, []bool{false, false, true}, []bool{h.Skips("A.v1"), h.Skips("A.v2"), h.Skips("Ignored")})
	}
	assert.Equal(t, []bool{true, false}, []bool{lax.Skips("B.v1"), strict.Skips("B.v1")})
	inbox.On(lax, "A.v1", do)
	assert.False(t, lax.Skips("B.v1"), "what is wrong with them comes first")
	assert.ErrorContains(t, inbox.NewHandlers(p.db, inbox.WithDecoder(debezium)).Err(), "WithDecoder is an option of Redeliver")
}

// What cannot be read is kept in the table, once, whatever is in it, and with tokens, too. When the
// consumer has learned to read it, a redrive has it handled, or ends it.
func TestRejectedUntilItCanBeRead(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		for _, options := range [][]inbox.Option{{p.at()}, {p.at(), inbox.WithTokens()}} {
			rest := make([]inbox.HandlersOption, len(options))
			for i := range options {
				rest[i] = options[i]
			}
			h := inbox.NewHandlers(p.db, rest...)
			type order struct{ ID string }
			var handled []string
			inbox.On(h, "shop.orders.c", func(_ *gorm.DB, o order, m *inbox.Message) error {
				assert.Equal(t, "orders", m.Source)
				handled = append(handled, o.ID)
				return nil
			})
			reject := func(position string, payload []byte, attributes map[string]string) {
				m := &inbox.Message{
					Consumer: consumer, Source: "orders", Key: inbox.UnreadableKey(&inbox.RawMessage{Source: "orders", Payload: payload}, position), Type: attributes["type"],
					Payload: payload, Attributes: attributes, Position: position,
				}
				for range 2 { // it comes again
					_, err := h.Reject(t.Context(), m, errors.New("it is no envelope"))
					require.NoError(t, err)
				}
			}
			reject("0/1", []byte("order a"), map[string]string{"type": "\xff\x00", "a\x00": "\xff"})
			reject("0/2", []byte("order b"), nil)
			reject("0/3", nil, nil)
			reject("0/4", []byte{0, 0, 0, 0, 42, 255}, nil)

			letters, err := inbox.DeadLetters(t.Context(), p.db, inbox.DeadLetterFilter{Consumer: consumer}, p.at())
			require.NoError(t, err)
			require.Len(t, letters, 4)
			for _, letter := range letters {
				assert.Equal(t, []string{"orders", "it is no envelope"}, []string{letter.Source, letter.LastError.Message})
			}
			redriven, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
			require.NoError(t, err)
			assert.Equal(t, int64(4), redriven)

			outs := 0
			decoder := func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
				id, ours := strings.CutPrefix(string(raw.Payload), "order ")
				switch {
				case len(raw.Payload) == 0:
					return nil, inbox.ErrSkip
				case !ours:
					return nil, nil //nolint:nilnil // it is another's
				case outs == 0:
					outs++
					return nil, inbox.Unavailable(errors.New("the registry is out"))
				}
				return &envelope.CloudEvent{ID: string(raw.Payload), Type: "shop.orders.c", Data: []byte(`{"ID":"` + id + `"}`)}, nil
			}
			done := 0
			for _, problem := range []string{"the registry is out", "", ""} {
				n, err := inbox.Redeliver(t.Context(), p.db, consumer, h, append(options, inbox.WithDecoder(decoder))...)
				done += n
				if problem != "" {
					require.ErrorContains(t, err, problem)
				}
			}
			assert.ElementsMatch(t, []string{"a", "b"}, handled)
			assert.Equal(t, 3, done, "the tombstone is done with, too")
			reject("0/1", []byte("order a"), nil) // by a process that cannot read it yet
			letters, err = inbox.DeadLetters(t.Context(), p.db, inbox.DeadLetterFilter{Consumer: consumer}, p.at())
			require.NoError(t, err)
			if len(options) == 1 { // with tokens nothing is left of what is handled
				require.Len(t, letters, 1)
				assert.Equal(t, []byte{0, 0, 0, 0, 42, 255}, letters[0].Payload)
			}
			require.NoError(t, p.plain().Exec("DELETE FROM "+p.table).Error)
		}
	})
}

// A redriven message whose decoder is out, as where its registry is gone, waits; those behind it do not.
func TestRedeliverWhileTheDecoderIsOut(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		for n, payload := range []string{"old", "fine"} {
			m := p.message()
			m.Key, m.Payload, m.Envelope = uuid.MustParse(fmt.Sprintf("00000000-0000-8000-8000-00000000000%d", n)), []byte(payload), nil
			_, err := inbox.NewHandlers(p.db, p.at()).Reject(t.Context(), m, errBoom)
			require.NoError(t, err)
		}
		_, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
		require.NoError(t, err)
		decoder := inbox.WithDecoder(func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
			if string(raw.Payload) == "old" {
				return nil, inbox.Unavailable(errors.New("the registry is gone"))
			}
			return &envelope.CloudEvent{ID: string(raw.Payload), Type: "T"}, nil
		})
		handled := inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) { return inbox.Handled, nil })
		for _, want := range []int{1, 0} {
			n, err := inbox.Redeliver(t.Context(), p.db, consumer, handled, p.at(), decoder)
			require.ErrorContains(t, err, "the registry is gone")
			assert.True(t, inbox.IsUnavailable(err))
			assert.Equal(t, want, n)
		}
		assert.Equal(t, 1, p.count("SELECT count(*) FROM "+p.table+" WHERE status = 'redriven'"))
	})
}
