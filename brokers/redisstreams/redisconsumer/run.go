package redisconsumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// flushGrace bounds the last calls of a stop.
const flushGrace = 5 * time.Second

// run is one Run of a consumer. What waits for what is the session's; what is here is what Redis
// alone needs: which entries are ours, and that the server knows it.
type run struct {
	*Consumer
	*consumer.Session

	feeds []*feed
	// exclusive is locked, shared, while entries are claimed, and exclusively while one that may
	// have crashed a process is handled alone.
	exclusive sync.RWMutex

	mu sync.Mutex // after the session's own, where both are held
}

// A feed is what a run has claimed of one stream.
type feed struct {
	*stream

	primary *feed // whose backfill it is; nil for most

	// idle is set while a read of the stream has found nothing new.
	idle atomic.Bool
	// unsure is set when something turns out not to be ours as we have it: it may be ours in
	// another way, as the answer to a script was lost, or was given back.
	unsure atomic.Bool
	// own is held while the delivery counts of entries are changed, or checked, at the server.
	own sync.Mutex

	// The run's lock guards what follows.
	claims   map[string]*delivery // by position
	unloaded int                  // of these, without their payload in memory
	bytes    int64                // of the others
	due      []*delivery          // to be acknowledged, or to be released
	returned map[string]bool      // positions of entries that were released, and may be ours again
	rest     map[string]time.Time // isolated messages that were put back, by position, and when each may be tried again
	largest  int64                // bytes that an entry may have that is read next, as far as can be told
	full     bool                 // the log says that no more can be unloaded

	room     chan struct{} // there may be room for more
	toSettle chan struct{} // there may be something to acknowledge or to release

	// What follows is the reading goroutine's own.
	mustRecover bool   // entries may be pending for us that we do not know of
	recovered   string // the first of these that was not looked at yet; empty: all of them
	start       string // where the group begins if it has to be created again
	ready       bool   // the group is there
}

func (c *Consumer) newRun(ctx context.Context) *run {
	r := &run{Consumer: c}
	byStream := map[*stream]*feed{}
	for _, st := range c.streams {
		f := &feed{
			stream: st, primary: byStream[st.primary], claims: map[string]*delivery{}, returned: map[string]bool{}, rest: map[string]time.Time{},
			largest: c.config.expected(), mustRecover: c.config.named, room: make(chan struct{}, 1), toSettle: make(chan struct{}, 1),
		}
		byStream[st] = f
		r.feeds = append(r.feeds, f)
	}
	settings := consumer.SettingsOf(&c.config.ConsumerConfig, c.handler, c.log, &c.counts)
	settings.Recurs, settings.Before = true, before
	settings.Load, settings.DeadLetter = r.load, r.deadLetter
	r.Session = consumer.New(ctx, &settings)
	return r
}

// consume runs until ctx ends, and stops in order.
func (r *run) consume(ctx context.Context) {
	last := context.WithoutCancel(ctx) // of everything that goes on after the stop has begun
	var takers, keepers sync.WaitGroup
	keeping, endKeeping := context.WithCancel(last)
	defer endKeeping()
	for _, f := range r.feeds {
		takers.Go(func() { r.take(ctx, f) })
		keepers.Go(func() { r.renew(keeping, f) })
		keepers.Go(func() { r.settle(keeping, f) })
	}
	<-ctx.Done()
	r.Stop(func() {})
	takers.Wait() // what they have claimed meanwhile was refused
	endKeeping()
	keepers.Wait()
	r.leave(last)
}

// nudge leaves a sign in a channel with room for one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
