package consumer

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// tabled is a consumer whose dead letters go to the inbox table.
type tabled struct {
	t        *testing.T
	db       *gorm.DB
	handlers *inbox.Handlers
	effects  int // of T.v1
	log      slog.Handler
	policy   bool // the broker has a dead letter policy
}

func newTabled(t *testing.T, log slog.Handler) *tabled {
	t.Helper()
	db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "inbox.db")+"?_pragma=busy_timeout(20000)"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pool.Close()) })
	_, err = inbox.Migrate(t.Context(), db)
	require.NoError(t, err)
	c := &tabled{t: t, db: db, log: log, handlers: inbox.NewHandlers(db, inbox.WithLogger(slog.New(log)))}
	inbox.On(c.handlers, "T.v1", func(*gorm.DB, json.RawMessage, *inbox.Message) error { c.effects++; return nil })
	return c
}

// consume has a consumer with a decoder, which may be nil, handle messages until all are confirmed.
func (c *tabled) consume(d inbox.Decoder, all ...*inbox.RawMessage) inbox.ConsumerStats {
	c.t.Helper()
	log := slog.New(c.log)
	config := inbox.ConsumerConfig{Log: log, Decoder: d}
	require.NoError(c.t, Complete("x", &config, c.handlers, "billing", "orders").Err())
	counts := &Counts{}
	set := SettingsOf(&config, c.handlers, log, counts)
	set.HandBack = func(*Entry) bool { return c.policy }
	s := New(c.t.Context(), &set)
	var broker told
	for n, raw := range all {
		m, broken := Read(&config, raw, raw.Position)
		s.Take(&Entry{ID: fmt.Sprint(n), Message: m, Broken: broken}, &broker)
	}
	require.Eventually(c.t, func() bool { return int(broker.acks.Load()) == len(all) }, time.Minute, time.Millisecond, "all are confirmed")
	s.Stop(func() {})
	return counts.Stats(nil)
}

func (c *tabled) letters() []inbox.DeadLetter {
	c.t.Helper()
	all, err := inbox.DeadLetters(c.t.Context(), c.db, inbox.DeadLetterFilter{Consumer: "billing"})
	require.NoError(c.t, err)
	return all
}

// An event cannot use up the key of a message that cannot be read, whatever it is called: that one is
// kept.
func TestKeyOfTheUnreadableIsNoEvents(t *testing.T) {
	t.Parallel()
	c := newTabled(t, slog.DiscardHandler)
	victim := &inbox.RawMessage{Payload: []byte("no envelope"), Source: "orders", Position: "0/7"}
	taken, err := json.Marshal(map[string]any{
		"specversion": "1.0", "source": "unreadable", "type": "T.v1", "data": map[string]any{},
		"id": fmt.Sprintf("orders\x000/7\x00%x", sha256.Sum256(victim.Payload)), // what a key was made of
	})
	require.NoError(t, err)
	stats := c.consume(nil, &inbox.RawMessage{Payload: taken, Source: "orders", Position: "0/6"}, victim)
	assert.Equal(t, []int{1, 1, 1}, []int{c.effects, int(stats.DeadLettered), len(c.letters())})
}

// At the place of a tombstone in a topic that was made anew is another tombstone: both are kept.
func TestTombstonesAtOnePlace(t *testing.T) {
	t.Parallel()
	c := newTabled(t, slog.DiscardHandler)
	tombstone := func(customer string, at time.Time) *inbox.RawMessage {
		return &inbox.RawMessage{OrderingKey: customer, Source: "orders", Position: "0/7", Published: at}
	}
	began := time.UnixMilli(1_000)
	stats := c.consume(nil, tombstone("customer-1", began), tombstone("customer-2", began), tombstone("customer-2", began.Add(time.Second)))
	assert.Equal(t, int64(3), stats.DeadLettered)
	assert.Len(t, c.letters(), 3)
}

// as is a decoder that makes events of all messages, their payloads being the ids.
func as(kind string) inbox.Decoder {
	return func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
		return &envelope.CloudEvent{ID: string(raw.Payload), Source: "/db", Type: kind, Data: []byte(`{}`)}, nil
	}
}

// redeliver redrives all dead letters and hands them out.
func (c *tabled) redeliver(d inbox.Decoder) (done int, err error) {
	c.t.Helper()
	_, err = inbox.RedriveAll(c.t.Context(), c.db, "billing", "")
	require.NoError(c.t, err)
	return inbox.Redeliver(c.t.Context(), c.db, "billing", c.handlers, inbox.WithDecoder(d))
}

// A message was kept unread, and came once more when its consumer had got a decoder, as the offset was
// not committed. Its redrive is no second effect; and where it was redriven first, that copy is none.
func TestOneEffectOfAMessageKeptUnread(t *testing.T) {
	t.Parallel()
	raw := &inbox.RawMessage{Payload: []byte("lsn-42"), Source: "orders", Position: "0/1"}
	for _, copyFirst := range []bool{true, false} {
		c := newTabled(t, slog.DiscardHandler)
		c.consume(nil, raw)
		if copyFirst {
			c.consume(as("T.v1"), raw)
		}
		done, err := c.redeliver(as("T.v1"))
		require.NoError(t, err)
		c.consume(as("T.v1"), raw)
		c.consume(nil, raw) // by a process of the old version
		again, err := c.redeliver(as("T.v1"))
		require.NoError(t, err)
		assert.Equal(t, []int{1, 0, 1}, []int{done, again, c.effects})
		assert.Empty(t, c.letters())
	}
}

// Where its handler fails, the message that was kept unread is a dead letter once, under its event's key.
func TestKeptUnreadAndFails(t *testing.T) {
	t.Parallel()
	c := newTabled(t, slog.DiscardHandler)
	inbox.On(c.handlers, "F.v1", func(*gorm.DB, json.RawMessage, *inbox.Message) error { return inbox.Permanent(errors.New("no")) })
	c.consume(nil, &inbox.RawMessage{Payload: []byte("lsn-42"), Source: "orders", Position: "0/1"})
	for range 2 {
		_, err := c.redeliver(as("F.v1"))
		require.NoError(t, err)
		letters := c.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, []any{"F.v1", inbox.KeyOf("/db", "lsn-42"), "no"}, []any{letters[0].Type, letters[0].Key, letters[0].LastError.Message})
	}
}

// A dead letter that the decoder now reads as another type, or as one that is ignored, is not redriven
// without an end.
func TestRedrivesEnd(t *testing.T) {
	t.Parallel()
	c := newTabled(t, slog.DiscardHandler)
	inbox.On(c.handlers, "F.v1", func(*gorm.DB, json.RawMessage, *inbox.Message) error { return inbox.Permanent(errors.New("no")) })
	c.handlers.Ignore("I.v1")
	c.consume(as("F.v1"), &inbox.RawMessage{Payload: []byte("1"), Source: "orders", Position: "0/1"})
	_, err := c.redeliver(as("T.v1"))
	require.ErrorContains(t, err, `recorded with the type "F.v1"`)
	letters := c.letters()
	require.Len(t, letters, 1)
	assert.Equal(t, "F.v1", letters[0].Type)
	assert.Contains(t, letters[0].LastError.Message, "is refused")

	done, err := c.redeliver(as("I.v1"))
	require.NoError(t, err)
	assert.Equal(t, 1, done, "what is skipped is done with")
	assert.Empty(t, c.letters())
}

// Where the broker has a policy for dead letters alone, messages that cannot be read are kept in the
// table: to give them back until the policy takes them would cost their keys. The log has one line a
// minute for all of one shape, and a copy of one that has been handled since is a duplicate.
func TestPolicyAndTable(t *testing.T) {
	t.Parallel()
	log := &lines{}
	c := newTabled(t, log)
	c.policy = true
	all := make([]*inbox.RawMessage, 50)
	for n := range all {
		all[n] = &inbox.RawMessage{Payload: fmt.Append(nil, "text ", n), OrderingKey: "a", Source: "orders", Position: fmt.Sprint(n)}
	}
	stats := c.consume(nil, all...)
	assert.Equal(t, []int64{50, 50, 0}, []int64{stats.Unreadable, stats.DeadLettered, stats.Nacked})
	assert.Equal(t, []string{"ERROR message cannot be read outcome=dead-lettered shape=text messages=1"}, log.said())

	done, err := c.redeliver(as("T.v1"))
	require.NoError(t, err)
	assert.Equal(t, 50, done)
	stats = c.consume(nil, all[0]) // it comes again
	assert.Equal(t, []int64{0, 1}, []int64{stats.DeadLettered, stats.Duplicates})
}

// Types and ids of messages, readable ones, too, are texts of any length: what the process keeps and
// writes of them is bounded.
func TestLongTypes(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := newTabled(t, slog.NewTextHandler(&log, nil))
	long := strings.Repeat("x", 64<<10)
	all := make([]*inbox.RawMessage, 20)
	for n := range all {
		kind := fmt.Sprint(n, long)
		all[n] = &inbox.RawMessage{Payload: []byte("x"), Attributes: map[string]string{"type": kind, "id": kind}, Source: "orders", Position: fmt.Sprint(n)}
		if n%2 == 0 {
			all[n].Payload, all[n].Attributes = []byte(event(kind, kind)), nil
		}
	}
	stats := c.consume(nil, all...)
	assert.Equal(t, int64(len(all)), stats.Skipped)
	size := 0
	for kind := range c.handlers.Unknown() {
		size += len(kind)
	}
	assert.Len(t, c.handlers.Unknown(), len(all))
	assert.LessOrEqual(t, size, len(all)*limits.MaxTypeBytes)
	assert.LessOrEqual(t, log.Len(), len(all)*4096)
}

// A decoder reads a dead letter of the table as it read the message: with the record's key, headers that
// are no text, its place and its time, and a source that the table has to cut; also when the redrive
// fails and comes again.
func TestRedriveReadsWhatHasArrived(t *testing.T) {
	t.Parallel()
	c := newTabled(t, slog.DiscardHandler)
	raw := &inbox.RawMessage{
		Attributes: map[string]string{"schema": "\x01\x9a\xff\x00\x80", "\xff": "a", "fanout": `{"position":"9/9"}`, "ordering_key": "other"}, OrderingKey: "customer-\xff",
		Source: "orders" + strings.Repeat("x", 300), Position: "0/1", Published: time.UnixMilli(1_700_000_000_123).UTC(),
	}
	seen := 0
	d := func(again *inbox.RawMessage) (*envelope.CloudEvent, error) {
		seen++
		assert.Equal(t, raw, again)
		return nil, errors.New("no schema yet")
	}
	stats := c.consume(d, raw)
	assert.Equal(t, int64(1), stats.DeadLettered)
	for range 2 {
		_, err := c.redeliver(d)
		require.ErrorContains(t, err, "no schema yet")
	}
	assert.Equal(t, 3, seen)
	letters := c.letters()
	require.Len(t, letters, 1)
	assert.Equal(t, raw.Attributes, letters[0].Attributes)
	_, err := c.redeliver(as("T.v1"))
	require.Error(t, err, "its id is empty")
	c.consume(func(again *inbox.RawMessage) (*envelope.CloudEvent, error) {
		return &envelope.CloudEvent{ID: again.Position, Type: "T.v1", Data: []byte(`{}`)}, nil
	}, raw)
	_, err = c.redeliver(func(again *inbox.RawMessage) (*envelope.CloudEvent, error) {
		return &envelope.CloudEvent{ID: again.Position, Type: "T.v1", Data: []byte(`{}`)}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, 1, c.effects, "its source is part of the key, and is whole")
}
