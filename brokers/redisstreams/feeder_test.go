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

// feeder publishes as a processor does: one key to each stream, again from the first message that is not
// confirmed.
type feeder struct {
	broker    brokers.Broker
	streams   []string
	sent      map[string][]brokers.Message
	confirmed map[string]*atomic.Int64
	classes   sync.Map // of failures, "class scope"
	ending    atomic.Bool
	done      chan struct{}
}

// feed starts a feeder. The test has to stop it.
func feed(t *testing.T, b brokers.Broker, streams ...string) *feeder {
	t.Helper()
	f := &feeder{broker: b, streams: streams, sent: map[string][]brokers.Message{}, confirmed: map[string]*atomic.Int64{}, done: make(chan struct{})}
	for _, stream := range streams {
		f.confirmed[stream] = new(atomic.Int64)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(f.done)
		pace := time.NewTicker(2 * time.Millisecond) // other tests want to run as well
		defer pace.Stop()
		for bulk := f.next(); len(bulk) > 0 && ctx.Err() == nil; bulk = f.next() {
			f.publish(ctx, t, bulk)
			<-pace.C
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	return f
}

// next is the next bulk: the streams by turns, so that each chunk has many streams and each key many messages.
func (f *feeder) next() (bulk []brokers.Message) {
	ending := f.ending.Load()
	for n := range 20 {
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
	return bulk
}

func (f *feeder) publish(ctx context.Context, t *testing.T, bulk []brokers.Message) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	stuck := map[string]bool{}
	for i, result := range f.broker.Publish(ctx, bulk) {
		stream := bulk[i].Destination
		if result.Err == nil {
			if assert.False(t, stuck[stream], "%s: a message was confirmed after one of its key that was not", bulk[i].ID) {
				f.confirmed[stream].Add(1)
			}
			continue
		}
		stuck[stream] = true
		for verdict := range verdicts([]brokers.Result{result}) {
			f.classes.Store(verdict, result.Err.Error())
		}
		class, _ := brokers.Classify(result.Err)
		assert.Contains(t, []brokers.Class{brokers.ClassUnavailable, brokers.ClassNotSent}, class, "%v", result.Err)
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

// stop waits until everything is confirmed, and checks what consumers of each stream see: all of it, its first
// deliveries in order.
func (f *feeder) stop(t *testing.T, read func(stream string) []brokers.Message) {
	t.Helper()
	f.ending.Store(true)
	<-f.done
	for _, stream := range f.streams {
		place, first := map[string]int{}, map[string]bool{}
		for i, m := range f.sent[stream] {
			place[m.ID] = i
		}
		last := -1
		for _, m := range read(stream) {
			if !first[m.ID] {
				require.Less(t, last, place[m.ID], "%s of %s came late", m.ID, stream)
				last = place[m.ID]
			}
			first[m.ID] = true
		}
		require.Len(t, first, len(f.sent[stream]), "everything that was confirmed is in %s", stream)
	}
}
