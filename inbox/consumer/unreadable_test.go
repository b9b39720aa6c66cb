package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// event is a message of a type that can be read.
func event(kind, id string) string {
	return `{"specversion":"1.0","id":"` + id + `","source":"/shop","type":"` + kind + `","data":{"n":1}}`
}

// arrived is an entry as a transport makes it.
func arrived(c *inbox.ConsumerConfig, key, id, payload string, attributes map[string]string) *Entry {
	raw := &inbox.RawMessage{Payload: []byte(payload), Attributes: attributes, OrderingKey: key, Source: "orders", Position: id}
	m, broken := Read(c, raw, id)
	return &Entry{ID: id, Message: m, Broken: broken}
}

// Where the broker has no place for them, messages that cannot be read go to the table of the
// handlers, with tokens, and where a decoder leaves them to the consumer, too; those of types that are not
// handled are skipped; keys go on.
func TestUnreadableMessagesGoToTheInbox(t *testing.T) {
	t.Parallel()
	for n, options := range [][]inbox.HandlersOption{nil, {inbox.WithTokens()}, nil} {
		db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "inbox.db")+"?_pragma=busy_timeout(20000)"), &gorm.Config{Logger: logger.Discard})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, pool.Close()) })
		_, err = inbox.Migrate(t.Context(), db)
		require.NoError(t, err)
		log := slog.New(slog.DiscardHandler)
		h := inbox.NewHandlers(db, append(options, inbox.WithLogger(log))...)
		inbox.On(h, "T.v1", func(*gorm.DB, struct{ N int }, *inbox.Message) error { return nil })

		c := inbox.ConsumerConfig{Log: log}
		if n == 2 {
			c.Decoder = func(*inbox.RawMessage) (*envelope.CloudEvent, error) { return nil, nil } //nolint:nilnil // left to the consumer
		}
		require.NoError(t, Complete("x", &c, h, "billing", "orders").Err())
		var counts Counts
		set := SettingsOf(&c, h, log, &counts)
		s := New(t.Context(), &set)
		var broker told
		s.Take(arrived(&c, "a", "0/1", "nonsense", nil), &broker)
		s.Take(arrived(&c, "a", "0/2", "nonsense", nil), &broker)
		s.Take(arrived(&c, "a", "0/3", "truncated {", map[string]string{"type": "T.v1"}), &broker)
		s.Take(arrived(&c, "a", "0/4", "truncated {", map[string]string{"type": "T.v2"}), &broker)
		s.Take(arrived(&c, "a", "0/5", "truncated {", map[string]string{"type": "Other"}), &broker)
		s.Take(arrived(&c, "a", "0/6", event("T.v1", "6"), nil), &broker)
		require.Eventually(t, func() bool { return broker.acks.Load() == 6 }, time.Minute, time.Millisecond, "all are confirmed")
		s.Stop(func() {})
		stats := counts.Stats(nil)
		assert.Equal(t, []int64{4, 1, 1, 5}, []int64{stats.DeadLettered, stats.Skipped, stats.Handled + stats.Duplicates, stats.Unreadable})
		assert.Equal(t, map[string]int64{"Other": 1}, h.Unknown())
		letters, err := inbox.DeadLetters(t.Context(), db, inbox.DeadLetterFilter{Consumer: "billing"})
		require.NoError(t, err)
		assert.Len(t, letters, 4)
	}
}

// lines keeps the lines of a log.
type lines struct {
	slog.Handler

	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "error" && a.Key != "retry_in" {
			line += " " + a.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	return nil
}

// said are the lines so far.
func (l *lines) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// Without any place they are held, block no key, and are logged once a minute for each shape; when
// there is a place, they go there.
func TestUnreadableMessagesAreHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int64
		set := settings(func(context.Context, *inbox.Message) error { handled.Add(1); return nil })
		log := &lines{}
		set.Log, set.Runner.Retry.MaxDelay = slog.New(log), 30*time.Second
		set.Unreadable = inbox.UnreadableDeadLetter
		c := inbox.ConsumerConfig{}
		s := New(t.Context(), &set)
		var broker told
		for n := range 10 {
			s.Take(arrived(&c, "a", fmt.Sprint("nonsense", n), "nonsense", nil), &broker)
			s.Take(arrived(&c, "a", fmt.Sprint("array", n), "[]", nil), &broker)
			s.Take(arrived(&c, "a", fmt.Sprint("event", n), event("T", fmt.Sprint(n)), nil), &broker)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []int64{10, 10, 0}, []int64{handled.Load(), broker.acks.Load(), broker.nacks.Load()})
		stats := set.Counts.Stats(s)
		assert.Equal(t, []int64{20, 20}, []int64{stats.Held, stats.Unreadable})
		assert.ElementsMatch(t, []string{
			"ERROR message cannot be read outcome=held shape=text messages=1", "ERROR message cannot be read outcome=held shape=JSON array messages=1",
		}, log.said())
		time.Sleep(100 * time.Second)
		synctest.Wait()
		assert.GreaterOrEqual(t, len(log.said()), 4)
		assert.LessOrEqual(t, len(log.said()), 6)
		s.Stop(func() {})
		synctest.Wait()
		assert.Equal(t, int64(20), broker.nacks.Load(), "they are given back")
		stats = set.Counts.Stats(nil)
		assert.Zero(t, stats.Held)
	})
}

// A message whose decoder is out is read again after a pause, and its key waits; no attempt is
// charged.
func TestDecoderIsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out atomic.Bool
		out.Store(true)
		var handled []string
		set := settings(func(_ context.Context, m *inbox.Message) error {
			handled = append(handled, m.ID)
			return nil
		})
		log := &lines{}
		set.Log = slog.New(log)
		set.Workers = 1
		c := inbox.ConsumerConfig{Consumer: "billing", Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
			switch text := string(raw.Payload); {
			case !strings.HasPrefix(text, "order"):
				return nil, nil //nolint:nilnil // it is another's
			case out.Load():
				return nil, inbox.Unavailable(errors.New("the registry is out"))
			case text == "order 0":
				return nil, errors.New("no")
			default:
				return &envelope.CloudEvent{ID: text, Type: "T"}, nil
			}
		}}
		set.Decoder, set.Unreadable = c.Decoder, inbox.UnreadableSkip
		s := New(t.Context(), &set)
		var broker told
		s.Take(arrived(&c, "a", "1", "order 1", nil), &broker)
		s.Take(arrived(&c, "a", "2", event("T", "2"), nil), &broker)
		s.Take(arrived(&c, "b", "3", "order 0", nil), &broker)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Empty(t, handled)
		assert.LessOrEqual(t, len(log.said()), 11)
		assert.Equal(t, "WARN message cannot be read yet messages=1", log.said()[0])
		out.Store(false)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"order 1", "2"}, handled)
		stats := set.Counts.Stats(s)
		assert.Equal(t, []int64{2, 1, 1, 0, 0}, []int64{stats.Handled, stats.Skipped, stats.Unreadable, stats.Failed, stats.Claimed})
		s.Stop(func() {})
	})
}

// What is held blocks no key, also where that is known only later than at its arrival, as its decoder
// was out; copies, stops and what comes later find it in its new place.
func TestHeldWhenItsDecoderIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out atomic.Bool
		out.Store(true)
		var handled atomic.Int64
		set := settings(func(context.Context, *inbox.Message) error { handled.Add(1); return nil })
		set.Unreadable = inbox.UnreadableDeadLetter
		c := inbox.ConsumerConfig{Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
			switch {
			case strings.HasPrefix(string(raw.Payload), "{"):
				return nil, nil //nolint:nilnil // it is left to the consumer
			case out.Load():
				return nil, inbox.Unavailable(errors.New("registry out"))
			}
			return nil, errors.New("no such schema")
		}}
		set.Decoder = c.Decoder
		s := New(t.Context(), &set)
		var broker told
		take := func(id, payload string) {
			e := arrived(&c, "a", id, payload, nil)
			e.Gap = time.Minute
			s.Take(e, &broker)
		}
		take("1", "avro")
		take("2", event("T", "2"))
		take("3", "avro")
		take("4", event("T", "4"))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, handled.Load(), "its key waits for its decoder")
		out.Store(false)
		time.Sleep(24 * time.Hour)
		take("1", "avro") // a copy
		take("5", event("T", "5"))
		synctest.Wait()
		stats := set.Counts.Stats(s)
		assert.Equal(t, []int64{2, 2, 0, 1, 3}, []int64{stats.Held, stats.Claimed, stats.Running, stats.Copies, handled.Load()})
		s.Stop(func() {})
		assert.Equal(t, []int64{3, 3}, []int64{broker.acks.Load(), broker.nacks.Load()})
		assert.Empty(t, s.queues.byKey)
	})
}

// There are few shapes, and each message has one.
func TestShapes(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		"": "empty", "\n": "empty", "\x00\x00\x00\x00\x2a\xff": "schema registry", "Obj\x01\x04": "Avro", "\xff\xfe": "binary", "hello": "text",
		`{"a":`: "broken JSON", `[1]`: "JSON array", `[1`: "text", `42`: "JSON value", `null`: "JSON value", `{"a":1}`: "JSON object",
		`{"op":"c","source":{}}`: "Debezium", `{"schema":{},"payload":{"op":"c","source":{}}}`: "Debezium", `{"schema":{},"payload":{"a":1}}`: "Kafka Connect",
		`{"schema":{},"payload":1}`: "Kafka Connect", `{"specversion":"2.0"}`: "CloudEvent", `{"data":{},"metadata":{}}`: "envelope",
	} {
		assert.Equal(t, want, shapeOf(&inbox.Message{Payload: []byte(payload)}), "%q", payload)
	}
	assert.Equal(t, "long text", shapeOf(&inbox.Message{Payload: bytes.Repeat([]byte("["), maxShape+1)}))
	assert.Equal(t, "no payload", shapeOf(&inbox.Message{}))
	assert.Equal(t, "CloudEvent in binary mode", shapeOf(&inbox.Message{Attributes: map[string]string{"ce-specversion": "1.0"}}))
}

// FuzzRead: whatever arrives is a message, and one that cannot be read has a key of its own and a
// shape.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", "42", "\x00\x00\x00\x00\x2a\xff", "\xff", `{"op":"c","source":{}}`, `{"schema":{},"payload":null}`, event("T", "1"),
		`{"specversion":"1.0","id":"7","source":"/a","type":"T","data_base64":"CJYB"}`, `{"data":{},"metadata":{}}`,
	} {
		f.Add([]byte(seed), "ce-specversion", "1.0", "ce-id", "7")
		f.Add([]byte(seed), "type", "T", "id", "")
	}
	f.Fuzz(func(t *testing.T, payload []byte, name, value, other, more string) {
		c := inbox.ConsumerConfig{Consumer: "billing"}
		raw := &inbox.RawMessage{Payload: payload, Attributes: map[string]string{name: value, other: more}, Source: "orders", Position: "0/1"}
		m, err := Read(&c, raw, "0/1")
		require.NotNil(t, m)
		assert.Equal(t, []string{"billing", "orders", "0/1"}, []string{m.Consumer, m.Source, m.Position})
		assert.Equal(t, payload, m.Payload)
		if err == nil {
			require.NotNil(t, m.Envelope)
			return
		}
		assert.Equal(t, inbox.UnreadableKey(raw, "0/1"), m.Key)
		assert.NotEmpty(t, shapeOf(m))
		_, _ = m.SpanContext(), m.Age(time.Now())
	})
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// A decoder that returns a nil pointer as its error makes a dead letter of its message, whose fields
// say so.
func TestDecoderReturnsANilPointer(t *testing.T) {
	t.Parallel()
	c := inbox.ConsumerConfig{Consumer: "billing", Decoder: func(*inbox.RawMessage) (*envelope.CloudEvent, error) {
		var failed *nilError
		return nil, failed
	}}
	e := arrived(&c, "a", "0/1", "x", nil)
	_, e.Why = c.Decoder.Decode(&inbox.RawMessage{})
	assert.Contains(t, DeadLetterAttributes(e, "orders")[0].Value, "*consumer.nilError")
}

type rudeSkipper struct{ inbox.Handler }

func (rudeSkipper) Skips(string) bool { panic("no") }

// A handler that panics when it is asked about a type skips none.
func TestSkipperPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := settings(func(context.Context, *inbox.Message) error { return nil })
		set.Runner.Handler = rudeSkipper{set.Runner.Handler}
		log := &lines{}
		set.Log = slog.New(log)
		var dead atomic.Int64
		set.DeadLetter = func(context.Context, *Entry) error { dead.Add(1); return nil }
		s := New(t.Context(), &set)
		var broker told
		s.Take(arrived(&inbox.ConsumerConfig{}, "a", "1", "nonsense", map[string]string{"type": "T"}), &broker)
		synctest.Wait()
		assert.Equal(t, []int64{1, 1}, []int64{dead.Load(), broker.acks.Load()})
		assert.Contains(t, log.said(), "ERROR handler panicked type=T panic=no")
		s.Stop(func() {})
	})
}
