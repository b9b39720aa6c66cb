package consumertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// message is message n of a key.
func message(key string, n int) Message {
	id := uuid.NewSHA1(uuid.Nil, fmt.Append(nil, key, n)).String()
	payload, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": id, "source": "/ordering", "type": handledType, "datacontenttype": "application/json",
		"data": map[string]any{"key": key, "n": n},
	})
	if err != nil {
		panic(err)
	}
	return Message{ID: id, Type: handledType, Key: key, Payload: payload}
}

// messages from up to below to, of each key by turns.
func messages(from, to int, keys ...string) (all []Message) {
	for n := from; n < to; n++ {
		for _, key := range keys {
			all = append(all, message(key, n))
		}
	}
	return all
}

// seen is what a handler was given.
type seen struct {
	key string
	n   int
}

// answer is what a handler does with a message that it is given for the time-th time.
type answer func(ctx context.Context, m *inbox.Message, it seen, time int) (inbox.Outcome, error)

// ledger is the handler of all consumers of a case: it writes down what it sees. It fails the test
// when two messages of a key are handled at once.
type ledger struct {
	t  testing.TB
	do answer
	// overlaps are no error: the source gives a key to several consumers.
	overlaps bool

	mu      sync.Mutex
	begun   []seen
	done    []seen
	times   map[seen]int
	running map[string]int
}

func newLedger(t testing.TB, do answer) *ledger {
	return &ledger{t: t, do: do, times: map[seen]int{}, running: map[string]int{}}
}

// read is what is in a message.
func read(m *inbox.Message) (it seen, err error) {
	var data struct {
		Key string
		N   int
	}
	text := []byte(m.Envelope.Data)
	if inner, is := bytes.CutPrefix(m.Payload, []byte(bare)); is && text == nil {
		text = inner
	}
	err = json.Unmarshal(text, &data)
	return seen{data.Key, data.N}, err
}

// Handle implements [inbox.Handler].
func (l *ledger) Handle(ctx context.Context, m *inbox.Message) (outcome inbox.Outcome, err error) {
	it, err := read(m)
	if err != nil {
		return "", err
	}
	if m.OrderingKey != it.key {
		l.t.Errorf("the ordering key is %q, of a message of %q", m.OrderingKey, it.key)
	}
	l.mu.Lock()
	if it.key != "" && l.running[it.key] > 0 && !l.overlaps {
		l.t.Errorf("two messages of key %s at once, one of them %d", it.key, it.n)
	}
	l.running[it.key]++
	l.times[it]++
	time := l.times[it]
	l.begun = append(l.begun, it)
	l.mu.Unlock()
	panics := true
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running[it.key]--
		if err == nil && !panics {
			l.done = append(l.done, it)
		}
	}()
	outcome = inbox.Handled
	if l.do != nil {
		outcome, err = l.do(ctx, m, it, time)
	}
	panics = false
	return outcome, err
}

// finished are the messages whose handler has succeeded, in that order.
func (l *ledger) finished() []seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]seen(nil), l.done...)
}

// started is how many attempts have begun.
func (l *ledger) started() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.begun)
}

// firsts are the different messages that are done, in the order in which each was done first.
func (l *ledger) firsts() (all []seen) {
	found := map[seen]bool{}
	for _, it := range l.finished() {
		if !found[it] {
			found[it] = true
			all = append(all, it)
		}
	}
	return all
}

// inOrder requires that the messages of each key were done in order, each for the first time after
// the one before it.
func (l *ledger) inOrder(t testing.TB) {
	t.Helper()
	next := map[string]int{}
	for _, it := range l.firsts() {
		if it.key != "" {
			require.Equal(t, next[it.key], it.n, "key %s", it.key)
			next[it.key]++
		}
	}
}

// journal is a log that can be looked at.
type journal struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.all.String(), text)
}

// last is where a text stands for the last time, -1 where it does not.
func (j *journal) last(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.LastIndex(j.all.String(), text)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
