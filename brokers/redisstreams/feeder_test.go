package redisstreams_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// feeder publishes without end, as a processor does: one key to each stream, and what is not
// confirmed goes again, from there on.
type feeder struct {
	broker    brokers.Broker
	streams   []string
	sent      map[string][]brokers.Message
	confirmed map[string]*atomic.Int64
	classes   sync.Map // what went wrong, "class scope"
	end       chan struct{}
	done      chan struct{}
	cancel    context.CancelFunc
}

// feed starts a feeder. It has to be stopped.
func feed(t *testing.T, b brokers.Broker, streams ...string) *feeder {
	t.Helper()
	f := &feeder{
		broker: b, streams: streams, sent: map[string][]brokers.Message{}, confirmed: map[string]*atomic.Int64{},
		end: make(chan struct{}), done: make(chan struct{}),
	}
	for _, stream := range streams {
		f.confirmed[stream] = new(atomic.Int64)
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	go f.run(ctx, t)
	t.Cleanup(func() {
		f.cancel()
		<-f.done
	})
	return f
}

func (f *feeder) run(ctx context.Context, t *testing.T) {
	defer close(f.done)
	pace := time.NewTicker(2 * time.Millisecond) // other tests want to run as well
	defer pace.Stop()
	for ending := false; ctx.Err() == nil; <-pace.C {
		select {
		case <-f.end:
			ending = true
		default:
		}
		var bulk []brokers.Message
		for n := range 20 { // by turns, so that each chunk has many streams and each key many messages
			for _, stream := range f.streams {
				at := int(f.confirmed[stream].Load()) + n
				if at == len(f.sent[stream]) && !ending {
					f.sent[stream] = append(f.sent[stream], message(stream, "key of "+stream, at))
				}
				if at < len(f.sent[stream]) {
					bulk = append(bulk, f.sent[stream][at])
				}
			}
		}
		if len(bulk) == 0 {
			return
		}
		f.account(t, bulk, f.publish(ctx, bulk))
	}
}

func (f *feeder) publish(ctx context.Context, bulk []brokers.Message) []brokers.Result {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return f.broker.Publish(ctx, bulk)
}

func (f *feeder) account(t *testing.T, bulk []brokers.Message, results []brokers.Result) {
	stuck := map[string]bool{}
	for i, result := range results {
		stream := bulk[i].Destination
		if result.Err != nil {
			stuck[stream] = true
			for verdict := range verdicts(results[i : i+1]) {
				if _, seen := f.classes.Swap(verdict, result.Err.Error()); !seen {
					t.Logf("%s: %v", verdict, result.Err)
				}
			}
			class, _ := brokers.Classify(result.Err)
			assert.Contains(t, []brokers.Class{brokers.ClassUnavailable, brokers.ClassNotSent}, class, "%v", result.Err)
			continue
		}
		if assert.False(t, stuck[stream], "%s: a message was confirmed after one of its key that was not", bulk[i].ID) {
			f.confirmed[stream].Add(1)
		}
	}
}

// saw reports whether a message got this class and scope.
func (f *feeder) saw(verdict string) bool {
	_, seen := f.classes.Load(verdict)
	return seen
}

// progress waits until n more messages of each of the streams are confirmed.
func (f *feeder) progress(t *testing.T, n int64, streams ...string) {
	t.Helper()
	for _, stream := range streams {
		target := f.confirmed[stream].Load() + n
		soon(t, "publishing to "+stream+" goes on", func() bool { return f.confirmed[stream].Load() >= target })
	}
}

// stop waits until all that was sent is confirmed, and checks what consumers of each stream see:
// everything, its first deliveries in order. How many were delivered more than once is logged.
func (f *feeder) stop(t *testing.T, read func(stream string) []brokers.Message) {
	t.Helper()
	close(f.end)
	select {
	case <-f.done:
	case <-time.After(30 * time.Second):
		require.Fail(t, "not everything was confirmed in the end")
	}
	duplicates := 0
	for _, stream := range f.streams {
		place, first := map[string]int{}, map[string]bool{}
		for i, m := range f.sent[stream] {
			place[m.ID] = i
		}
		received, last := read(stream), -1
		for _, m := range received {
			if !first[m.ID] {
				require.Less(t, last, place[m.ID], "%s of %s came late", m.ID, stream)
				last = place[m.ID]
			}
			first[m.ID] = true
		}
		require.Len(t, first, len(f.sent[stream]), "everything that was confirmed is in %s", stream)
		duplicates += len(received) - len(first)
	}
	t.Logf("%d duplicates", duplicates)
}
