package main

import (
	"context"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// outageLength is how long a broker stays away, at least.
const outageLength = time.Second

// moment is where the run stands.
type moment struct {
	placed  int
	trading bool
	counts  []admin.BrokerCounts

	completed   bool      // the consumers have confirmed everything, and nothing more comes
	unconfirmed int       // while they have not
	since       time.Time // when that number was another one
}

// stuckTime is how long it takes until the partner's clock is put forward: a message can have been
// on its way to a process that was dying.
const stuckTime = time.Second

// act is something that happens to the run. Acts happen one after the other.
type act interface {
	// step does what it is time for, and says whether the act is over.
	step(ctx context.Context, r *run, now *moment) (over bool, err error)
}

// acts are the play: processes die and brokers go away, while orders come in.
func acts() []act {
	return []act{
		&kill{from: 1. / 6},
		&outage{
			from:   1. / 3,
			down:   (*servers).partnerDown,
			up:     func(s *servers) error { defer s.deadlinesPass(); return s.partnerUp() },
			broker: "partner", gone: "The partner's server has closed its port. Its rows wait; the internal broker carries on.",
			back: "The partner's server is back after %s; %d of its messages were waiting, %d of the internal broker's.", other: "default",
		},
		&outage{
			from: 1. / 2,
			down: (*servers).carrierBusy, up: (*servers).carrierFree,
			broker: "carrier", gone: "The carrier's endpoint is busy: it answers 503, and asks for a pause. Its rows wait without spending an attempt.",
			back: "The carrier's endpoint takes requests again after %s; %d of its messages were waiting, %d of the internal broker's.", other: "default",
		},
		&kill{from: 2. / 3},
		&outage{
			from: 2. / 3,
			// The new process has claimed much by now. It cannot confirm what it handles before it
			// is killed, so that is delivered again.
			working: true, kill: true,
			down: (*servers).internalDown, up: (*servers).internalUp,
			broker: "default", gone: "The internal broker has closed its port, too, on relay and consumer. It keeps what it has; the partner is served.",
			back: "The internal broker is back after %s; %d of its messages were waiting, %d of the partner's.", other: "partner",
		},
	}
}

// due reports whether it is time for what begins when this part of the orders is placed.
func (r *run) due(from float64, now *moment) bool {
	return float64(now.placed) >= from*float64(r.cfg.orders) || !now.trading
}

// outage takes a broker's server away for a moment.
type outage struct {
	from          float64 // when this part of the orders is placed
	working       bool    // and the consumer's process is at work
	kill          bool    // and that is killed in the middle of the outage
	down          func(*servers)
	up            func(*servers) error
	broker, other string
	gone, back    string

	began time.Time
}

func (o *outage) step(ctx context.Context, r *run, now *moment) (over bool, err error) {
	switch {
	case o.began.IsZero():
		if r.due(o.from, now) && (!o.working || r.projector.working() || now.completed) {
			o.down(r.servers)
			o.began = time.Now()
			r.view.sayf("%s", o.gone)
		}
	case o.kill && time.Since(o.began) >= outageLength/2:
		o.kill = false
		return false, r.kill(ctx)
	case time.Since(o.began) >= outageLength:
		if err := o.up(r.servers); err != nil {
			return false, err
		}
		r.view.sayf(o.back, time.Since(o.began).Round(100*time.Millisecond), waiting(now.counts, o.broker), waiting(now.counts, o.other))
		return true, nil
	}
	return false, nil
}

// kill ends the consumer's process in the middle of its work, and starts it again.
type kill struct {
	from float64 // when this part of the orders is placed
}

func (k *kill) step(ctx context.Context, r *run, now *moment) (over bool, err error) {
	if !r.due(k.from, now) || !r.projector.working() && !now.completed {
		return false, nil
	}
	return true, r.kill(ctx)
}

func (r *run) kill(ctx context.Context) error {
	if err := r.projector.kill(); err != nil {
		return err
	}
	delivered, _ := r.projector.reports.numbers()
	r.view.sayf("The consumer's process is killed after %d messages, and started again.", delivered-r.projector.began)
	r.servers.deadlinesPass()
	return r.projector.start(ctx)
}

func waiting(counts []admin.BrokerCounts, broker string) int64 {
	for _, entry := range counts {
		if entry.Broker == broker {
			return entry.Counts[outbox.StatusPending] + entry.Counts[outbox.StatusProcessing] + entry.Counts[outbox.StatusFailed]
		}
	}
	return 0
}
