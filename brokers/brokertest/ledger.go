package brokertest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// A ledger keeps, outside of the broker, what it was asked to publish and what it said about it. It
// sends as a processor does: a message goes again until it is confirmed, and no later one of its
// key is sent before it is.
type ledger struct {
	msgs  []brokers.Message
	state []state
	said  map[string]int // how often each class was given
}

// The states of a message, as far as the broker's answers tell.
type state int

const (
	unsent       state = iota // never handed to the server
	unknown                   // perhaps there
	acknowledged              // there
)

func newLedger(destination string, n int, keys ...string) *ledger {
	return &ledger{msgs: messages(destination, n, keys...), state: make([]state, n), said: map[string]int{}}
}

// next returns the first messages that are not confirmed, at most n.
func (l *ledger) next(n int) (indexes []int) {
	for i := range l.msgs {
		if l.state[i] != acknowledged && len(indexes) < n {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func (l *ledger) messages(indexes []int) []brokers.Message {
	msgs := make([]brokers.Message, len(indexes))
	for n, i := range indexes {
		msgs[n] = l.msgs[i]
	}
	return msgs
}

// record enters the results of an attempt and reports whether all was confirmed. ended tells that
// the attempt's context had ended: then a message may be retryable, otherwise a fault of the
// network is never a message's own.
func (l *ledger) record(t *testing.T, indexes []int, results []brokers.Result, ended bool) (all bool) {
	t.Helper()
	all = true
	failed := map[string]bool{}
	for n, i := range indexes {
		key, err := l.msgs[i].OrderingKey, results[n].Err
		class, _ := brokers.Classify(err)
		l.said[string(class)]++
		switch class {
		case "":
			require.False(t, failed[key], "message %d of key %q was confirmed after one that was not", i, key)
			l.state[i] = acknowledged
			continue
		case brokers.ClassNotSent:
		case brokers.ClassUnavailable:
			l.state[i] = unknown
		case brokers.ClassRetryable:
			require.True(t, ended, "message %d: the network is to blame, not the message: %v", i, err)
			l.state[i] = unknown
		case brokers.ClassPermanent:
			require.Fail(t, "a fault of the network is not final", "message %d: %v", i, err)
		}
		all = false
		failed[key] = key != ""
	}
	return all
}

func (l *ledger) done() bool { return len(l.next(1)) == 0 }

// check compares with what consumers were given: what was confirmed is there, what was never sent
// is not, and the first deliveries of each key came in order and without a gap. At the end, the
// number of duplicates is noted as well.
func (l *ledger) check(t *testing.T, received []brokers.Message, end bool) {
	t.Helper()
	place := make(map[string]int, len(l.msgs))
	for i := range l.msgs {
		place[l.msgs[i].ID] = i
	}
	times, next := make([]int, len(l.msgs)), l.firsts()
	for _, r := range received {
		i, known := place[r.ID]
		if !known {
			continue // of another ledger
		}
		times[i]++
		key := l.msgs[i].OrderingKey
		if key == "" || times[i] > 1 {
			continue
		}
		require.Equal(t, next[key][0], i, "key %q: the first deliveries come in order and without a gap", key)
		next[key] = next[key][1:]
	}
	duplicates := 0
	for i, n := range times {
		switch l.state[i] {
		case acknowledged:
			require.Positive(t, n, "message %d was confirmed, but was not received", i)
		case unsent:
			require.Zero(t, n, "message %d was said not to be sent, but consumers got it", i)
		case unknown:
		}
		duplicates += max(0, n-1)
	}
	if end {
		l.said["duplicates"] = duplicates
	}
}

// firsts lists the messages of each key, in order.
func (l *ledger) firsts() map[string][]int {
	byKey := map[string][]int{}
	for i := range l.msgs {
		byKey[l.msgs[i].OrderingKey] = append(byKey[l.msgs[i].OrderingKey], i)
	}
	return byKey
}

// String tells what became of the messages.
func (l *ledger) String() string {
	return fmt.Sprintf("%d messages: %d results confirmed, %d unavailable, %d not sent, %d retryable; %d duplicates", len(l.msgs),
		l.said[""], l.said[string(brokers.ClassUnavailable)], l.said[string(brokers.ClassNotSent)],
		l.said[string(brokers.ClassRetryable)], l.said["duplicates"])
}
