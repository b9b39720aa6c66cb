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

// settle claims what was delivered and has not arrived. It is false where ctx or the connection ended
// first.
func (r *run) settle(ctx, arriving context.Context, n int) bool {
	for r.order.doubtful {
		if !r.awaitReturn(ctx) {
			return false
		}
		found, err := r.returned(ctx, n)
		if ctx.Err() != nil {
			return false // what was found comes again
		}
		if err != nil {
			session.Pause(ctx, r.outage.Failed(ctx, err))
			continue
		}
		for _, m := range found {
			r.arrive(arriving, m)
		}
	}
	return true
}

// awaitReturn waits until everything that was delivered and is not renewed is due again, a little
// longer than AckWait and the longest step of BackOff, or until there is no such thing. It is false
// where ctx or the connection ended first.
func (r *run) awaitReturn(ctx context.Context) bool {
	for since := time.Now(); time.Since(since) <= r.due+r.due/10; {
		if r.conn.IsClosed() {
			return false
		}
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
		if !session.Pause(ctx, min(r.ackWait/20, r.options.pace.probe)) {
			return false
		}
	}
	return true
}

// returned fetches until there is nothing that was delivered and is neither claimed nor found, and
// returns it in the order of the stream: the server delivers what is due again in the order in which it
// came due, and not all of it at once. Doubts remain where a delivery was lost meanwhile.
func (r *run) returned(ctx context.Context, n int) (found []jetstream.Msg, err error) {
	bySequence := map[uint64]jetstream.Msg{}
	r.order.doubtful = false
	for since := time.Now(); ; {
		err := r.fetch(n, func(m jetstream.Msg) {
			if meta, err := m.Metadata(); err == nil && r.order.follows(m) {
				bySequence[meta.Sequence.Stream] = m
			}
		})
		var info *jetstream.ConsumerInfo
		if err == nil && !r.order.doubtful {
			info, err = r.info(ctx)
		}
		if err != nil || r.order.doubtful {
			r.order.doubtful = true
			return nil, err
		}
		here, _ := r.Figures()
		for _, m := range bySequence { // copies of what is claimed come, too
			if meta, err := m.Metadata(); err != nil || !r.Has(idOf(meta)) {
				here++
			}
		}
		// What somebody has given back with a delay that is longer still is not waited for.
		if info.NumAckPending <= here || time.Since(since) > r.due+2*r.options.pace.away {
			break
		}
		for _, m := range bySequence {
			_ = m.InProgress() // else it would be due again
		}
	}
	for _, sequence := range slices.Sorted(maps.Keys(bySequence)) {
		found = append(found, bySequence[sequence])
	}
	return found, nil
}
