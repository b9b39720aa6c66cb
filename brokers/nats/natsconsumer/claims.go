package natsconsumer

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// renewals within AckWait: one may fail.
const renewals = 3

// delivery implements [consumer.Delivery].
type delivery struct {
	run      *run
	message  jetstream.Msg
	sequence uint64 // in the stream
	epoch    int64
}

// current reports whether the message is still what the server knows by its place in the stream, and this
// process's. The server takes a confirmation, a renewal and a message that is given back for whatever it has
// at that place, from whoever says so.
func (d *delivery) current() bool { return d.epoch == d.run.epoch.Load() }

// Ack implements [consumer.Delivery].
func (d *delivery) Ack() {
	if d.current() {
		d.note("ack", d.message.Ack())
	}
}

// Nack implements [consumer.Delivery]. What is given back to make room comes again later: what it made
// room for comes first. The server redelivers in the order of the stream what comes due together. What is
// said without a connection arrives when the message may be another's: it comes again anyway.
func (d *delivery) Nack() {
	r := d.run
	if d.current() && !r.keep(d) && r.conn.IsConnected() {
		d.note("nak", d.message.NakWithDelay(r.config.pace.away))
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
	for _, d := range r.back {
		all = append(all, d)
	}
	r.mu.Unlock()
	return slices.DeleteFunc(all, func(d *delivery) bool { return !d.current() })
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
		if !consumer.Pause(ctx, min(ackWait/renewals-time.Since(tried), time.Until(told.Add(ackWait)), r.config.pace.probe)) {
			return
		}
		lapse()
		if time.Since(tried) < ackWait/renewals {
			continue
		}
		tried = time.Now()
		connected := r.conn.IsConnected()
		if connected { // else it would fill the client's buffer
			for _, d := range r.claimed() {
				_ = d.message.InProgress() // the flush says whether it arrived
			}
		}
		if r.flush(ctx, min(ackWait/renewals, closing)) == nil && connected {
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

// lapse gives up all that is claimed, and the contexts of its handlers end. Nothing is said to the
// server, which would take it away from those who have it now. What an exclusive consumer has claimed
// comes to no other, and to it as copies: it continues.
func (r *run) lapse(ctx context.Context) {
	if r.config.Exclusive {
		return
	}
	r.epoch.Add(1)
	over, cancel := context.WithCancel(ctx)
	cancel()
	r.Withdraw(over, func(*consumer.Entry) bool { return true })
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
	maps.DeleteFunc(r.back, func(_ uint64, d *delivery) bool { return !d.current() })
	if len(r.back) == 0 {
		return r.conn.FlushTimeout(closing)
	}
	sequences := slices.Sorted(maps.Keys(r.back))
	for i, sequence := range sequences {
		reply, last := r.back[sequence].message.Reply(), i == len(sequences)-1
		if !r.conn.IsConnected() { // see Nack
			return nats.ErrDisconnected
		}
		var err error
		if last {
			_, err = r.conn.Request(reply, []byte("-NAK"), closing)
		} else {
			err = r.conn.Publish(reply, []byte("-NAK"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
