package redisconsumer

import (
	"context"
	"errors"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// Messages that wait, behind a failing one of their key or for an attempt of their own, would fill
// the room for claimed messages and starve every other key of the stream. While workers are idle and
// nothing new fits in, the consumer unloads some: they stay claimed and in the queue of their key, and
// their claims are renewed, but their payload is dropped and fetched again when it is their turn.
const (
	// unloadedPerRoom bounds the unloaded messages of a stream, in multiples of MaxOutstandingMessages.
	unloadedPerRoom = 64
	// unloadPatience is how long workers are idle before something is unloaded: those that are busy
	// may make room.
	unloadPatience = 50 * time.Millisecond
)

// errOver says that an entry is not ours any more.
var errOver = errors.New("redisconsumer: the entry was taken over by another member of the group")

// awaitRoom waits until there is room for more entries, and makes some where nothing else does.
func (r *run) awaitRoom(ctx context.Context, f *feed) {
	patience := unloadPatience
	if _, running := r.Figures(); running == 0 {
		patience = time.Millisecond
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-f.room:
	case <-timer.C:
		r.unload(ctx, f)
	}
}

// unload makes room for a quarter of the room while workers are idle.
func (r *run) unload(ctx context.Context, f *feed) {
	if r.roomIn(f) > 0 || !r.Idle() {
		return
	}
	room := r.config.MaxOutstandingMessages
	r.mu.Lock()
	unloaded, said := f.unloaded, f.full
	quota := min((room+3)/4, unloadedPerRoom*room-unloaded)
	f.full = quota <= 0
	r.mu.Unlock()
	if quota > 0 {
		r.Unload(quota, func(e *consumer.Entry) bool { return r.drop(f, e) })
	} else if !said {
		r.log.WarnContext(ctx, "stream not read: too many messages unloaded", "stream", f.name, "unloaded", unloaded)
	}
}

// drop drops the message of an entry, where it is one of the stream's and can be fetched again.
func (r *run) drop(f *feed, e *consumer.Entry) bool {
	d := deliveryOf(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.feed != f || d.state != claimed || d.unloaded || d.gone || e.Why != nil {
		return false
	}
	e.Message, d.unloaded = nil, true
	d.release()
	f.unloaded++
	return true
}

// load fetches the payload of an entry that was unloaded.
func (r *run) load(ctx context.Context, e *consumer.Entry) error {
	d := deliveryOf(e)
	f := d.feed
	r.mu.Lock()
	state, unloaded, count := d.state, d.unloaded, d.count
	r.mu.Unlock()
	switch {
	case state == over:
		return errOver
	case !unloaded:
		return nil
	}
	begun := time.Now()
	entries, err := r.client.XRange(ctx, f.name, d.position, d.position).Result()
	if err == nil && len(entries) == 0 {
		err = r.ensureOurs(ctx, f, []*delivery{d}, 0) // removes it from the pending entries
	}
	if err != nil {
		r.failed(ctx, f.stream, "reload from", err)
		return err
	}
	r.succeeded(ctx, f.stream, "reload from", begun)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case d.state == over:
		return errOver
	case len(entries) == 0:
		r.forget(d)
		r.trimmed(ctx, f, d.position)
		return consumer.ErrGone
	}
	fields := stringFields(entries[0].Values)
	message, broken := r.message(f.stream, d.id, count, fields)
	if e.Message = message; !inbox.IsUnavailable(e.Broken) { // else its decoder may have been asked, and still answer
		e.Broken = broken
	}
	d.unloaded, d.bytes = false, int64(consumer.AttributesBytes(fields))
	f.unloaded--
	d.hold()
	return nil
}
