package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	driver "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
)

// An event of a type that is handled, whose data is not JSON, becomes a dead letter that says so.
func TestDataThatIsNotJSON(t *testing.T) {
	t.Parallel()
	db := consumerDB(t)
	h := NewHandlers(db, WithLogger(slog.New(slog.DiscardHandler)))
	On(h, "T.v1", func(*gorm.DB, orderV1, *Message) error { return errors.New("it must not run") })
	for _, form := range []map[string]string{
		{"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/a", "ce-type": "T.v1"},
		{"id": "0199c0de-0000-7000-8000-000000000001", "type": "T.v1", "time": "2026-11-27T19:30:01Z"}, // an encoding of our own
	} {
		for contentType, remedy := range map[string]string{"avro/binary": "give the consumer a Decoder", "application/protobuf": "handle the type with protobuf.On"} {
			attributes := maps.Clone(form)
			attributes["content-type"] = contentType
			m, err := Decode([]byte("\x08\x96\x01"), attributes)
			require.NoError(t, err)
			m.Consumer, m.Source = contentType, "orders"+form["id"]
			outcome, err := h.Handle(t.Context(), m)
			require.NoError(t, err)
			assert.Equal(t, DeadLettered, outcome)
			letters, err := DeadLetters(t.Context(), db, DeadLetterFilter{Consumer: contentType})
			require.NoError(t, err)
			require.NotEmpty(t, letters)
			assert.Contains(t, letters[0].LastError.Message, fmt.Sprintf("the data, of content type %q, is not JSON: %s", contentType, remedy))
			assert.Equal(t, m.Payload, letters[0].Payload)
		}
	}
}

// A function of the application's own decodes what is no JSON; what is wrong with it is said, and costs its message alone.
func TestDecodeAs(t *testing.T) {
	t.Parallel()
	h := NewHandlers(consumerDB(t), WithLogger(slog.New(slog.DiscardHandler)))
	var got []string
	On(h, "T.v1", func(_ *gorm.DB, e orderV1, _ *Message) error {
		got = append(got, e.Customer)
		return nil
	})
	DecodeAs(h, func(m *Message) (orderV1, error) {
		switch string(m.Payload) {
		case "bad":
			return orderV1{}, errors.New("it is bad")
		case "worse":
			panic("it is worse")
		}
		return orderV1{Customer: string(m.Payload)}, nil
	})
	for payload, want := range map[string]Outcome{"\xff ada": Handled, "bad": DeadLettered, "worse": DeadLettered} {
		m, err := Decode([]byte(payload), map[string]string{
			"id": uuid.NewSHA1(uuid.Nil, []byte(payload)).String(), "type": "T.v1", "time": "2026-11-27T19:30:01Z", "content-type": "avro/binary",
		})
		require.NoError(t, err)
		m.Consumer, m.Source = "billing", "orders"
		outcome, err := h.Handle(t.Context(), m)
		require.NoError(t, err)
		assert.Equal(t, want, outcome, payload)
	}
	assert.Equal(t, []string{"\xff ada"}, got)
	DecodeAs[orderV1](h, nil)
	require.ErrorContains(t, h.Err(), "inbox: DecodeAs[inbox.orderV1]: the function is nil")
}

// The versions of one event, as a consumer knows them.
type (
	orderV1 struct{ Customer string }
	orderV2 struct{ First, Last string }
	orderV3 struct {
		First, Last string
		Loyal       bool
	}
)

// consumerDB is the database of a consumer.
func consumerDB(t *testing.T) *gorm.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "consumer.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"
	db, err := gorm.Open(driver.Open(path), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pool.Close()) })
	_, err = Migrate(t.Context(), db)
	require.NoError(t, err)
	return db
}

// arriving is a message of a type, with data.
func arriving(wireType, data string) *Message {
	key := uuid.Must(uuid.NewV7())
	payload := fmt.Appendf(nil, `{"data":%s,"metadata":{"headers":{"id":%q,"time":"2026-11-22T01:02:03Z","type":%q,"stream":"ordering::order-42"},`+
		`"envelope":{"specversion":"1.0","checksum":"00"},"domain":{"fqn":"x","kind":"EVENT"}}}`, data, key, wireType)
	m, err := Decode(payload, nil)
	if err != nil {
		panic(err)
	}
	m.Consumer, m.Source = "billing", "ordering::order"
	return m
}

// A consumer does nothing for producers whose catalog has envelope.WithCamelCase.
func TestHandlersOfCamelCase(t *testing.T) {
	t.Parallel()
	type placed struct {
		OrderID string
		Lines   []struct{ HTTPLink, UnitPriceEUR string }
	}
	events := envelope.NewCatalog("ordering", envelope.WithCamelCase())
	envelope.Register[placed](events, envelope.Name("OrderPlaced"))
	sent := placed{"7", []struct{ HTTPLink, UnitPriceEUR string }{{"https://x", "1.50"}}}
	sealed, err := events.Seal(envelope.NewEvent(sent), envelope.Source{}, envelope.Context{})
	require.NoError(t, err)
	require.JSONEq(t, `{"orderId":"7","lines":[{"httpLink":"https://x","unitPriceEur":"1.50"}]}`, string(sealed.Data))
	h := NewHandlers(consumerDB(t))
	var got placed
	On(h, "Ordering.OrderPlaced.v1", func(_ *gorm.DB, e placed, _ *Message) error { got = e; return nil })
	outcome, err := h.Handle(t.Context(), arriving("Ordering.OrderPlaced.v1", string(sealed.Data)))
	require.NoError(t, err)
	assert.Equal(t, Handled, outcome)
	assert.Equal(t, sent, got)
}

func TestTypedHandlers(t *testing.T) {
	t.Parallel()
	h := NewHandlers(consumerDB(t))
	var got []any
	On(h, "Ordering.OrderPlaced.v3", func(tx *gorm.DB, e orderV3, m *Message) error {
		got = append(got, e)
		assert.Equal(t, m.ID, envelope.FromContext(tx.Statement.Context).CausationID)
		return nil
	})
	Upcast(h, "Ordering.OrderPlaced.v2", "Ordering.OrderPlaced.v3", func(e orderV2) (orderV3, error) { return orderV3{e.First, e.Last, true}, nil })
	Upcast(h, "Ordering.OrderPlaced.v1", "Ordering.OrderPlaced.v2", func(e orderV1) (orderV2, error) {
		first, last, ok := strings.Cut(e.Customer, " ")
		if !ok {
			return orderV2{}, errors.New("no last name")
		}
		return orderV2{first, last}, nil
	})
	On(h, "Ordering.OrderShipped.v1", func(_ *gorm.DB, e json.RawMessage, _ *Message) error {
		got = append(got, string(e))
		return nil
	})
	require.NoError(t, h.Err())
	assert.Equal(t, []string{"Ordering.OrderPlaced.v1", "Ordering.OrderPlaced.v2", "Ordering.OrderPlaced.v3", "Ordering.OrderShipped.v1"}, h.Types())

	for _, m := range []*Message{
		arriving("Ordering.OrderPlaced.v3", `{"First":"Ada","Last":"Lovelace","Loyal":false}`), arriving("Ordering.OrderPlaced.v2", `{"First":"Alan","Last":"Turing"}`),
		arriving("Ordering.OrderPlaced.v1", `{"Customer":"Grace Hopper"}`), arriving("Ordering.OrderShipped.v1", `{"any":1}`),
	} {
		outcome, err := h.Handle(t.Context(), m)
		require.NoError(t, err)
		assert.Equal(t, Handled, outcome)
		outcome, err = h.Handle(t.Context(), m)
		require.NoError(t, err)
		assert.Equal(t, Duplicate, outcome)
	}
	assert.Equal(t, []any{orderV3{"Ada", "Lovelace", false}, orderV3{"Alan", "Turing", true}, orderV3{"Grace", "Hopper", true}, `{"any":1}`}, got)
}

// What cannot be handed on is reported, and what another release could handle is kept.
func TestUnhandled(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	db := consumerDB(t)
	h := NewHandlers(db, WithLogger(slog.New(slog.NewTextHandler(&text, nil))), WithChecksums())
	On(h, "Ordering.OrderPlaced.v1", func(*gorm.DB, orderV1, *Message) error { return nil })
	Upcast(h, "Ordering.OrderPlaced.v0", "Ordering.OrderPlaced.v1", func(orderV1) (orderV1, error) { panic("never") })
	h.Ignore("Ordering.Noise.v1")
	handle := func(m *Message) Outcome {
		outcome, err := h.Handle(t.Context(), m)
		require.NoError(t, err)
		return outcome
	}
	assert.Equal(t, Skipped, handle(arriving("Ordering.Noise.v1", "{}")))
	assert.Empty(t, text.String())
	assert.Equal(t, Skipped, handle(arriving("Ordering.Unheard.v1", "{}")))
	assert.Equal(t, Skipped, handle(arriving("Ordering.Unheard.v1", "{}")))
	assert.Equal(t, 1, strings.Count(text.String(), "message type without handler"), text.String())
	assert.Contains(t, text.String(), "type=Ordering.Unheard.v1")
	newer := arriving("Ordering.OrderPlaced.v2", "{}")
	assert.Equal(t, DeadLettered, handle(newer))
	assert.Equal(t, map[string]int64{"Ordering.Unheard.v1": 2, "Ordering.OrderPlaced.v2": 1}, h.Unknown())
	assert.Equal(t, DeadLettered, handle(arriving("Ordering.OrderPlaced.v1", `{}`)), "its checksum is wrong")

	h = NewHandlers(db, WithRejectUnknown())
	On(h, "Ordering.OrderPlaced.v1", func(*gorm.DB, orderV1, *Message) error { return nil })
	Upcast(h, "Ordering.OrderPlaced.v0", "Ordering.OrderPlaced.v1", func(orderV1) (orderV1, error) { panic("never") })
	assert.Equal(t, DeadLettered, handle(arriving("Ordering.Unheard.v1", "{}")))
	assert.Equal(t, DeadLettered, handle(arriving("Ordering.OrderPlaced.v1", `{"Customer":7}`)))
	assert.Equal(t, DeadLettered, handle(arriving("Ordering.OrderPlaced.v0", `{}`)))

	// Once the consumer knows the version, what became a dead letter is redriven and handled.
	handled := 0
	On(h, "Ordering.OrderPlaced.v2", func(_ *gorm.DB, _ orderV2, m *Message) error {
		assert.Equal(t, newer.Key, m.Key)
		handled++
		return nil
	})
	n, err := Redrive(t.Context(), db, "billing", "", []uuid.UUID{newer.Key})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
	done, err := Redeliver(t.Context(), db, "billing", h)
	require.NoError(t, err)
	assert.Equal(t, 1, done)
	assert.Equal(t, 1, handled)
}

// Whoever runs a handler is told why a message became a dead letter.
func TestWhyDeadLettered(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	h := NewHandlers(consumerDB(t))
	On(h, "Ordering.OrderPlaced.v1", func(*gorm.DB, orderV1, *Message) error { return errors.New("no such customer") })
	r := &Runner{Handler: h, Retry: Retry{MaxAttempts: 1}, Log: slog.New(slog.NewTextHandler(&text, nil))}
	failing := arriving("Ordering.OrderPlaced.v1", "{}")
	for m, why := range map[*Message]string{failing: "no such customer", arriving("Ordering.OrderPlaced.v2", "{}"): "version Ordering.OrderPlaced.v2 is not handled"} {
		a := r.Attempt(t.Context(), m, Past{})
		require.Equal(t, DeadLettered, a.Outcome)
		require.ErrorContains(t, a.Why, why)
		assert.Contains(t, text.String(), why)
	}
	a := r.Attempt(t.Context(), failing, Past{})
	assert.Equal(t, DeadLettered, a.Outcome)
	assert.NoError(t, a.Why, "it was a dead letter before")
}

// A producer that makes up types fills no memory.
func TestUnknownIsBounded(t *testing.T) {
	t.Parallel()
	h := NewHandlers(consumerDB(t), WithLogger(slog.New(slog.DiscardHandler)))
	On(h, "A.B.v1", func(*gorm.DB, struct{}, *Message) error { return nil })
	for n := range maxUnknown + 5 {
		outcome, err := h.Handle(t.Context(), arriving(fmt.Sprintf("Strange.Type%d.v1", n), "{}"))
		require.NoError(t, err)
		require.Equal(t, Skipped, outcome)
	}
	assert.Len(t, h.Unknown(), maxUnknown+1)
	assert.EqualValues(t, 5, h.Unknown()["(others)"])
}

func TestProblemsOfHandlers(t *testing.T) {
	t.Parallel()
	h := NewHandlers(nil)
	require.ErrorContains(t, h.Err(), "there is no handler, so every message would be skipped")
	one := func(*gorm.DB, orderV1, *Message) error { return nil }
	On(h, "", one)
	On[orderV1](h, "A.B.v0", nil)
	On(h, "A.B.v1", one)
	On(h, "A.B.v1", one)
	Upcast[orderV1, orderV2](h, "A.C.v1", "A.C.v1", nil)
	Upcast[orderV1, orderV2](h, "A.C.v1", "A.C.v2", nil)
	cast := func(orderV1) (orderV2, error) { return orderV2{}, nil }
	Upcast(h, "A.D.v1", "A.D.v2", cast)
	Upcast(h, "A.D.v1", "A.D.v3", cast)
	Upcast(h, "A.E.v1", "A.B.v1", cast)
	Upcast(h, "A.F.v1", "A.F.v2", func(e orderV1) (orderV1, error) { return e, nil })
	Upcast(h, "A.F.v2", "A.F.v1", func(e orderV1) (orderV1, error) { return e, nil })
	Upcast(h, "A.B.v1", "A.B.v2", cast)
	h.Ignore("A.B.v1")
	err := h.Err()
	for _, want := range []string{
		"the GORM handle is nil", "the wire type is empty", "On(A.B.v0): the function is nil", "On(A.B.v1): it has a handler already", `Upcast("A.C.v1", "A.C.v1")`,
		"Upcast(A.C.v1, A.C.v2): the function is nil", "it is upcast to A.D.v2 already", "A.D.v1 is upcast to A.D.v2, which has no handler",
		"the upcast of A.E.v1 to A.B.v1 gives a inbox.orderV2, and what takes it wants a inbox.orderV1", "A.F.v1 go round in a circle",
		"A.B.v1 has both a handler and an upcast", "A.B.v1 is both handled and ignored",
	} {
		assert.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, Validate(h), err)
	unopened := NewHandlers(&gorm.DB{}).Err()
	assert.ErrorContains(t, unopened, "use gorm.Open")
	options := NewHandlers(consumerDB(t), WithTable("x; y")).Err()
	assert.ErrorContains(t, options, "use letters, digits and underscores", "what every message would be answered with is said at the start")
	assert.ErrorContains(t, Validate(HandlerFunc(nil)), "the HandlerFunc is nil")
	assert.NoError(t, Validate(HandlerFunc(h.Handle)))
	_, handling := h.Handle(t.Context(), arriving("A.B.v1", "{}"))
	require.ErrorIs(t, handling, err)
	assert.True(t, IsUnavailable(handling), "nothing is lost")
}

// Handlers may be added while others run, and each message meets a whole set.
func TestHandlersConcurrently(t *testing.T) {
	t.Parallel()
	h := NewHandlers(consumerDB(t), WithLogger(slog.New(slog.DiscardHandler)))
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			On(h, fmt.Sprintf("A.B%d.v1", n), func(*gorm.DB, struct{}, *Message) error { return nil })
			outcome, err := h.Handle(context.Background(), arriving(fmt.Sprintf("A.B%d.v1", n), "{}"))
			assert.NoError(t, err)
			assert.Equal(t, Handled, outcome)
			_, _ = h.Handle(context.Background(), arriving("A.X.v1", "{}"))
		})
	}
	all.Wait()
	assert.Len(t, h.Types(), 8)
	assert.Equal(t, map[string]int64{"A.X.v1": 8}, h.Unknown())
}
