package pubsubconsumer

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/gorm-fanout/fanout/inbox"
)

// seen is what a handler was given.
type seen struct {
	key string
	n   int
}

// ledger is a handler that writes down what it sees, and says what a function says. It fails the
// test when two messages of a key are handled at once.
type ledger struct {
	t  testing.TB
	do func(ctx context.Context, m *inbox.Message, it seen, time int) (inbox.Outcome, error)

	mu      sync.Mutex
	begun   []seen
	done    []seen
	times   map[seen]int
	running map[string]bool
}

func newLedger(t testing.TB, do func(ctx context.Context, m *inbox.Message, it seen, time int) (inbox.Outcome, error)) *ledger {
	return &ledger{t: t, do: do, times: map[seen]int{}, running: map[string]bool{}}
}

func (l *ledger) Handle(ctx context.Context, m *inbox.Message) (outcome inbox.Outcome, err error) {
	var data struct {
		Key string
		N   int
	}
	if err := json.Unmarshal(m.Envelope.Data, &data); err != nil {
		return "", err
	}
	it := seen{data.Key, data.N}
	l.mu.Lock()
	if it.key != "" && l.running[it.key] {
		l.t.Errorf("two messages of key %s at once", it.key)
	}
	l.running[it.key] = true
	l.times[it]++
	time := l.times[it]
	l.begun = append(l.begun, it)
	l.mu.Unlock()
	panics := true
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.running, it.key)
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

func (l *ledger) finished() []seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]seen(nil), l.done...)
}
