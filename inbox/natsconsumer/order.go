package natsconsumer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// An order is that of the deliveries to the sole consumer of a durable. JetStream redelivers what is not
// confirmed AckWait after it was delivered, and delivers new messages meanwhile: so whatever it has
// delivered and has not arrived, to a process that died or over a connection that broke, has to come
// again before anything newer is handled. The server numbers its deliveries, and a number that is
// missing tells of one that was lost.
type order struct {
	kept     bool   // there is one
	doubtful bool   // something was delivered that has not arrived
	number   uint64 // of the last delivery
}

// follows reports whether all that was delivered before a message has arrived. If not, the message is
// to be left alone: it comes again, too.
func (o *order) follows(m jetstream.Msg) bool {
	if !o.kept {
		return true
	}
	meta, err := m.Metadata()
	if err != nil {
		return true // it is none of JetStream's
	}
	o.doubtful = o.doubtful || meta.Sequence.Consumer != o.number+1
	o.number = meta.Sequence.Consumer
	return !o.doubtful
}

// settle claims what was delivered and has not arrived. Doubts remain where ctx ended first.
func (r *run) settle(ctx, arriving context.Context) {
	for r.order.doubtful && r.awaitReturn(ctx) && r.order.doubtful {
		found, err := r.returned(ctx)
		if ctx.Err() != nil {
			r.order.doubtful = true // what was found comes again
			return
		}
		if err != nil {
			r.failed(ctx, err)
			continue
		}
		for _, m := range found {
			r.arrive(arriving, m)
		}
	}
}

// awaitReturn waits until everything that was delivered and is not renewed is due again, a little
// longer than AckWait and the longest step of BackOff, or until there is no such thing. It is false
// where ctx ended first.
func (r *run) awaitReturn(ctx context.Context) bool {
	for since := time.Now(); time.Since(since) <= r.due+r.due/10; {
		info, err := r.info(ctx)
		if err != nil || info.Delivered.Consumer != r.order.number { // out of reach, or delivered meanwhile, and not to us
			since = time.Now()
		}
		if err == nil {
			r.order.number, r.order.doubtful = info.Delivered.Consumer, info.NumAckPending > 0
			if !r.order.doubtful {
				return true
			}
		}
		if !session.Pause(ctx, r.glance()) {
			return false
		}
	}
	return true
}

// returned fetches until there is nothing that was delivered and is neither claimed nor found, and
// returns it in the order of the stream: the server delivers what is due again in the order in which it
// came due, and not all of it at once. Doubts remain where a delivery was lost meanwhile.
//
// What is due comes before anything new. So a new message shows that nothing is due, and what somebody has
// given back with a delay may not be for long: then one message is asked for at a time, with pauses.
func (r *run) returned(ctx context.Context) (found []jetstream.Msg, err error) {
	bySequence := map[uint64]jetstream.Msg{}
	r.order.doubtful = false
	for n, since := 1, time.Now(); ; {
		missing, err := r.missing(ctx, bySequence)
		if err != nil {
			r.order.doubtful = true
			return nil, err
		}
		// What was given back with a delay that is longer still is not waited for.
		if missing <= 0 || time.Since(since) > r.due+2*r.options.pace.away {
			break
		}
		for _, m := range bySequence {
			_ = m.InProgress() // else it would be due again
		}
		again, fresh := false, false
		err = r.fetch(min(n, missing), func(m jetstream.Msg) {
			if meta, err := m.Metadata(); err == nil && r.order.follows(m) {
				bySequence[meta.Sequence.Stream] = m
				again, fresh = again || meta.NumDelivered > 1, fresh || meta.NumDelivered == 1
			}
		})
		if err != nil || r.order.doubtful {
			r.order.doubtful = true
			return nil, err
		}
		n = 1
		switch {
		case fresh:
			session.Pause(ctx, r.glance())
		case again:
			n = r.few
		}
	}
	for _, sequence := range slices.Sorted(maps.Keys(bySequence)) {
		found = append(found, bySequence[sequence])
	}
	return found, nil
}

// missing is how many messages were delivered that are neither claimed nor found, unless what is claimed
// was confirmed just now.
func (r *run) missing(ctx context.Context, found map[uint64]jetstream.Msg) (int, error) {
	info, err := r.info(ctx)
	if err != nil {
		return 0, err
	}
	claimed, _ := r.Figures()
	n := info.NumAckPending - claimed
	for _, m := range found { // copies of what is claimed come, too
		if meta, err := m.Metadata(); err != nil || !r.Has(idOf(meta)) {
			n--
		}
	}
	return n, nil
}

// glance is how long to wait between looks at what is due.
func (r *run) glance() time.Duration { return min(r.ackWait/20, r.options.pace.probe) }
