package natsconsumer

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// renewals within AckWait: one may fail.
const renewals = 3

// delivery implements [session.Delivery].
type delivery struct {
	run      *run
	message  jetstream.Msg
	sequence uint64 // in the stream
}

// Ack implements [session.Delivery].
func (d *delivery) Ack() { d.note("ack", d.message.Ack()) }

// Nack implements [session.Delivery]. What is given back to make room comes again later: what it made
// room for comes first. The server redelivers in the order of the stream what comes due together.
//
// The server takes a message away from whoever has it, whoever says so. What is said without a connection
// arrives when the message may be another's: it comes again anyway.
func (d *delivery) Nack() {
	r := d.run
	if !r.lapsing.Load() && !r.keep(d) && r.conn.IsConnected() {
		d.note("nak", d.message.NakWithDelay(r.options.pace.away))
	}
}

func (d *delivery) note(what string, err error) {
	if err != nil {
		d.run.AckFailed(what, strconv.FormatUint(d.sequence, 10), err)
	}
}

// claimed are the deliveries that this process has not let go of.
func (r *run) claimed() (all []*delivery) {
	for _, d := range r.Claimed() {
		all = append(all, d.(*delivery)) //nolint:forcetypeassert // the only kind there is
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.back {
		all = append(all, d)
	}
	return all
}

// renew tells the server that what is claimed is worked on. Where that was not told for AckWait, as the
// server could not be reached or this process was frozen, the messages are others' by now.
func (r *run) renew(ctx context.Context) {
	told := time.Now()
	for tried := told; ; {
		ackWait := r.terms().ackWait
		lapse := func() {
			if time.Since(told) >= ackWait {
				told = time.Now()
				r.lapse(ctx)
			}
		}
		// The terms may change meanwhile, too.
		if !session.Pause(ctx, min(ackWait/renewals-time.Since(tried), time.Until(told.Add(ackWait)), r.options.pace.probe)) {
			return
		}
		lapse()
		if time.Since(tried) < ackWait/renewals {
			continue
		}
		tried = time.Now()
		for _, d := range r.claimed() {
			_ = d.message.InProgress() // the flush says whether it arrived
		}
		if r.flush(ctx, min(ackWait/renewals, closing)) == nil {
			told = tried
		}
		lapse()
	}
}

func (r *run) flush(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return r.conn.FlushWithContext(ctx)
}

// lapse gives up all that is claimed, and the contexts of its handlers end. Nothing is said to the server,
// which would take it away from those who have it now. What a sole consumer has claimed comes to nobody
// but to it, as copies: it goes on.
func (r *run) lapse(ctx context.Context) {
	if r.options.sole {
		return
	}
	r.lapsing.Store(true)
	defer r.lapsing.Store(false)
	over, cancel := context.WithCancel(ctx)
	cancel()
	r.Withdraw(over, func(*session.Entry) bool { return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.back)
}

// stop begins to keep what is given back.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// keep keeps what is given back during a stop, and is false before.
func (r *run) keep(d *delivery) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		r.back[d.sequence] = d
	}
	return r.stopping
}

// end ends what goes on in the background, gives back what was kept, and waits until the server has noted
// all of it.
func (r *run) end() {
	r.over()
	if err := r.giveBack(); err != nil {
		r.log.WarnContext(r.life, "last confirmations not answered", "waited", closing, "error", err)
	}
	r.background.Wait()
}

// giveBack gives back what was kept. The server redelivers in the order in which it was told, and before
// anything new: so it is told all at once, in the order of the stream, when no fetch of ours is left
// that could get it. It answers the last one when it has noted those before it.
func (r *run) giveBack() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.back) == 0 {
		return r.conn.FlushTimeout(closing)
	}
	if !r.conn.IsConnected() { // see Nack
		return nats.ErrDisconnected
	}
	sequences := slices.Sorted(maps.Keys(r.back))
	last := len(sequences) - 1
	for _, sequence := range sequences[:last] {
		if err := r.conn.Publish(r.back[sequence].message.Reply(), []byte("-NAK")); err != nil {
			return err
		}
	}
	_, err := r.conn.Request(r.back[sequences[last]].message.Reply(), []byte("-NAK"), closing)
	return err
}
