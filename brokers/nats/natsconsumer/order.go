package natsconsumer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// An order is that of the deliveries to the exclusive consumer of a durable. JetStream redelivers what is not
// confirmed AckWait after it was delivered, and delivers new messages meanwhile: so whatever it has
// delivered and has not arrived, to a process that died or over a connection that broke, has to come
// again before anything newer is handled. The server numbers its deliveries, and a number that is
// missing tells of one that was lost.
type order struct {
	kept     bool   // it is, as the consumer is the exclusive one
	doubtful bool   // something was delivered that has not arrived
	number   uint64 // of the last delivery
}

// follows reports whether all that was delivered before a message has arrived. If not, the message is
// to be left alone: it comes again, too.
func (o *order) follows(meta *jetstream.MsgMetadata) bool {
	o.doubtful = o.kept && (o.doubtful || meta.Sequence.Consumer != o.number+1)
	o.number = meta.Sequence.Consumer
	return !o.doubtful
}

// settle claims what was delivered and has not arrived. Doubts remain where ctx ended first.
func (r *run) settle(ctx, arriving context.Context) {
	for r.order.doubtful {
		mine := r.places() // nothing else is claimed until this is settled
		if !r.awaitReturn(ctx) || !r.order.doubtful {
			return
		}
		found, err := r.returned(ctx, mine)
		if ctx.Err() != nil {
			r.order.doubtful = true // what was found comes again
			return
		}
		if err != nil {
			r.failed(ctx, err)
			continue
		}
		for _, m := range found {
			if meta, err := m.Metadata(); err == nil { // it was read before
				r.arrive(arriving, m, meta)
			}
		}
	}
}

// awaitReturn waits until everything that was delivered and is not renewed is due again, a little
// longer than AckWait and the longest step of BackOff, or until there is no such thing. It is false
// where ctx ended first.
func (r *run) awaitReturn(ctx context.Context) bool {
	for since := time.Now(); time.Since(since) <= r.terms().due+r.terms().due/10; {
		info, err := r.info(ctx)
		if err != nil || info.Delivered.Consumer != r.order.number || info.Paused { // out of reach, or delivered meanwhile, and not to us
			since = time.Now()
		}
		if err == nil {
			r.order.number, r.order.doubtful = info.Delivered.Consumer, info.NumAckPending > 0
			if !r.order.doubtful {
				return true
			}
		}
		if !consumer.Pause(ctx, r.glance()) {
			return false
		}
	}
	return true
}

// A search is for what was delivered and has not arrived.
type search struct {
	*run

	mine   map[uint64]bool          // what was claimed when the doubt began, by its place in the stream
	found  map[uint64]jetstream.Msg // likewise
	newest uint64                   // place of what was delivered when it began: what is behind is new
	since  time.Time                // the last time that one was found, or that none could be
	asked  time.Time                // the last time that one was asked for
	told   time.Time                // when the server was told last that they are worked on
}

// returned fetches until there is nothing that was delivered and is neither claimed nor found, and
// returns it in the order of the stream: the server delivers what is due again in the order in which it
// came due, and not all of it at once. Doubts remain where a delivery was lost meanwhile.
//
// What is due comes before anything new: so a fetch that brings something new, or nothing that was not
// found before, shows that nothing is due. What another process has given back with a delay may not
// be for long: then one message is asked for at a time, with pauses.
func (r *run) returned(ctx context.Context, mine map[uint64]bool) (found []jetstream.Msg, err error) {
	began := time.Now()
	s := &search{run: r, mine: mine, found: map[uint64]jetstream.Msg{}, since: began, asked: began, told: began}
	r.order.doubtful = false
	defer func() { r.order.doubtful = r.order.doubtful || err != nil }()
	for n, again, fresh := 1, true, false; ; {
		missing, err := s.missing(ctx)
		if err != nil {
			return nil, err
		}
		// What was given back with a delay that is longer still is not waited for.
		over := missing <= 0 || s.asked.Sub(s.since) > r.terms().due+2*r.config.pace.away
		if over && (fresh || !again) {
			break
		}
		if fresh {
			consumer.Pause(ctx, r.glance())
		}
		again, fresh, err = s.seek(min(n, max(missing, 1)))
		if err != nil || r.order.doubtful {
			return nil, err
		}
		n = 1
		if again && !fresh {
			n = r.terms().few
		}
	}
	for _, sequence := range slices.Sorted(maps.Keys(s.found)) {
		found = append(found, s.found[sequence])
	}
	return found, nil
}

// seek fetches n messages at most, and says whether some were found again, and some are new.
func (s *search) seek(n int) (again, fresh bool, err error) {
	s.asked = time.Now()
	soon := s.terms().ackWait / renewals
	if s.asked.Sub(s.told) > soon { // else it would be due again
		s.told = s.asked
		for _, m := range s.found {
			_ = m.InProgress()
		}
	}
	err = s.fetch(n, min(s.terms().wait, soon), func(m jetstream.Msg, meta *jetstream.MsgMetadata) {
		if !s.order.follows(meta) {
			return
		}
		place := meta.Sequence.Stream
		switch {
		case place > s.newest:
			fresh = true
		case s.found[place] == nil:
			again, s.since = true, time.Now()
		}
		s.found[place] = m
	})
	return again, fresh, err
}

// missing is how many messages were delivered that are neither claimed nor found. It is more where
// confirmations are on their way, and less where the server has dropped what is claimed, as a purge does.
func (s *search) missing(ctx context.Context) (int, error) {
	info, err := s.info(ctx)
	if err != nil {
		return 0, err
	}
	if info.Paused {
		s.since = time.Now()
	}
	if s.newest == 0 {
		s.newest = info.Delivered.Stream
	}
	n := info.NumAckPending - len(s.places())
	for sequence := range s.found { // copies of what is or was claimed come, too
		if !s.mine[sequence] {
			n--
		}
	}
	return n, nil
}

// places are those in the stream of what is claimed.
func (r *run) places() map[uint64]bool {
	all := map[uint64]bool{}
	for _, d := range r.claimed() {
		all[d.sequence] = true
	}
	return all
}

// glance is how long to wait between looks at what is due.
func (r *run) glance() time.Duration { return min(r.terms().ackWait/20, r.config.pace.probe) }
