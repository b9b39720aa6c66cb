package redisconsumer

import (
	"time"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// A delivery is an entry that was claimed; it implements [consumer.Delivery]. The lock of its run
// guards what changes of it.
type delivery struct {
	run   *run
	feed  *feed
	entry *consumer.Entry // nil once it is settled
	id    entryID
	// position is the id as text.
	position string
	// count is the delivery count under which it is ours; with our name in the group it is the token
	// that is checked before anything is done to the entry.
	count int64
	// bytes of its fields, and those of them that are in memory.
	bytes, held int64

	state    state
	unloaded bool // its payload is not in memory
	gone     bool // from the stream: nothing is left to renew
	// alone is set of an isolated message, which is handled while nothing else is claimed, and closed when
	// it is no longer claimed; pause is how long it rests at least before it is tried again.
	alone chan struct{}
	pause time.Duration
	// What its return makes of it: how long it has been idle then, and how many deliveries it is charged with.
	idle   time.Duration
	charge int64
}

type state int

const (
	claimed  state = iota
	handled        // to be acknowledged
	released       // to be
	over           // forgotten, or another member's
)

// deliveryOf is what the session has got of us.
func deliveryOf(e *consumer.Entry) *delivery {
	return e.First().(*delivery) //nolint:forcetypeassert // the only kind there is
}

// before is the order of entries of one stream. Between a stream and its backfill there is none.
func before(a, b *consumer.Entry) bool {
	one, other := deliveryOf(a), deliveryOf(b)
	return one.feed == other.feed && one.id.before(other.id)
}

// Ack implements [consumer.Delivery].
func (d *delivery) Ack() {
	d.run.mu.Lock()
	defer d.run.mu.Unlock()
	if d.state != claimed { // another's, or gone with its dead letter
		return
	}
	d.state = handled
	d.entry = nil // it may take long until the server answers
	d.release()
	d.feed.due = append(d.feed.due, d)
	nudge(d.feed.toSettle)
}

// Nack implements [consumer.Delivery]: others may have the entry at once, and no attempt is charged.
func (d *delivery) Nack() {
	d.run.mu.Lock()
	defer d.run.mu.Unlock()
	if d.state != claimed {
		return
	}
	d.state, d.idle, d.charge = released, d.run.config.ClaimAfter, -1
	if d.alone != nil {
		d.putBack()
	}
	d.release()
	d.feed.due = append(d.feed.due, d)
	nudge(d.feed.toSettle)
}

// hold counts the bytes of an entry that is in memory. The lock is held.
func (d *delivery) hold() {
	d.release()
	d.held = d.bytes
	d.feed.bytes += d.held
}

// release counts them no more. The lock is held.
func (d *delivery) release() {
	d.feed.bytes -= d.held
	d.held = 0
}

// forget lets go of an entry. The lock is held.
func (r *run) forget(d *delivery) {
	f := d.feed
	if d.state == over {
		return
	}
	if f.claims[d.position] == d {
		delete(f.claims, d.position)
	}
	d.state = over
	d.release()
	if d.unloaded {
		d.unloaded = false
		f.unloaded--
	}
	if d.alone != nil {
		close(d.alone)
	}
	nudge(f.room)
}

// admit has claimed entries handled. What is claimed already is delivered again after its group was
// deleted: the one that is there goes on, under the new delivery.
func (r *run) admit(f *feed, all []*delivery) {
	var fresh []*delivery
	r.mu.Lock()
	for _, d := range all {
		if there := f.claims[d.position]; there != nil {
			there.count, there.gone = d.count, false
			continue
		}
		f.claims[d.position] = d
		d.hold()
		fresh = append(fresh, d)
	}
	f.expect(all)
	r.mu.Unlock()
	for _, d := range fresh {
		r.Take(d.entry, d)
		r.mu.Lock()
		settled := d.state == over
		r.mu.Unlock()
		if settled { // where another member had taken it over before, the session does not know
			r.withdraw(map[*delivery]bool{d: true})
		}
	}
}

// roomIn is how many more entries may be claimed.
func (r *run) roomIn(f *feed) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := r.config.MaxOutstandingMessages
	if f.primary != nil { // no more than are handled soon: who has claimed them may have better things to do
		most = min(most, 2*r.config.Workers)
	}
	room := max(most-(len(f.claims)-f.unloaded), 0)
	left := int64(r.config.MaxOutstandingBytes) - f.bytes
	if room == 0 || left <= 0 {
		return 0
	}
	return min(room, int(max(left/max(f.largest, 1), 1)))
}

// expect learns from entries that have come how large the next ones may be: as the largest of them, or
// half of what was expected. The lock is held.
func (f *feed) expect(all []*delivery) {
	if len(all) == 0 {
		return
	}
	f.largest /= 2
	for _, d := range all {
		f.largest = max(f.largest, d.bytes)
	}
}
