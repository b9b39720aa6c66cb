package relay

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// HandOffStats count rows that were considered for a hand-off, where it is switched on.
type HandOffStats struct {
	// Sent were handed off and verified. What became of them is in the other counters of Stats.
	Sent int64
	// Unfit rows were written as ever: for a time or with a priority, or the broker was paused or
	// unavailable, or its rate used up.
	Unfit int64
	// Busy rows were written as ever because their shard had work already.
	Busy int64
	// Full rows were written as ever because there was no room.
	Full int64
	// Behind rows were given back to the database after the commit: an earlier row of their key was
	// open, or many of their shard; or the broker had been paused, which this processor did not
	// know yet.
	Behind int64
	// Withdrawn rows were given back after the commit: by a pause, an outage, a shutdown, or
	// because it had become late.
	Withdrawn int64
	// Gone rows were not there any more, or in other hands.
	Gone int64
}

// Reserve asks the processors of a database for room for rows that are about to be inserted, with
// one statement or more, and committed in one transaction. It returns nil where no row has room. It
// waits for nothing. The rows must not change any more.
func (e *Engine) Reserve(database string, dialect outbox.Dialect, rows []outbox.Row) *outbox.Reservation {
	var places []outbox.Place
	for _, processor := range e.processors {
		if processor.database != database || processor.receiver == nil {
			continue
		}
		p, ok := processor.receiver.reserve(dialect, rows)
		if !ok {
			continue
		}
		if places == nil {
			places = make([]outbox.Place, 0, len(e.processors))
		}
		places = append(places, p)
	}
	if places == nil {
		return nil
	}
	return outbox.NewReservation(rows, places)
}

// HandsOff reports whether a processor of the database takes rows by hand-off.
func (e *Engine) HandsOff(database string) bool {
	for _, processor := range e.processors {
		if processor.database == database && processor.receiver != nil {
			return true
		}
	}
	return false
}

// room is what a reservation has taken of a receiver.
type room struct {
	at      *receiver
	dialect outbox.Dialect
	asked   time.Time          // from before the INSERT on the lease is counted
	shards  [outbox.Shards]int // rows in each shard
	rows    int
}

// reserve finds room for the rows of this processor's broker, for all or for none.
func (r *receiver) reserve(dialect outbox.Dialect, rows []outbox.Row) (_ outbox.Place, ok bool) {
	p := &room{at: r, dialect: dialect, asked: time.Now()}
	fit := dialect.Shards() == r.p.store.Shards() && r.p.running.Load() && !r.p.paused.Load() && r.p.breaker.closed()
	for i := range rows {
		if row := &rows[i]; row.TargetBroker == r.p.broker {
			fit = fit && row.AvailableAt.IsZero() && row.Priority == 0 && (row.ExpiresAt.IsZero() || row.ExpiresAt.After(p.asked))
			p.rows++
			if fit {
				p.shards[dialect.Shard(row)]++ // of normal priority
			}
		}
	}
	if p.rows == 0 {
		return outbox.Place{}, false
	}
	reason := &r.stats.unfit
	if fit {
		reason = r.take(p)
	}
	if reason != nil {
		reason.Add(int64(p.rows))
		return outbox.Place{}, false
	}
	// The worker has its name: the receiver is open.
	return outbox.Place{Broker: r.p.broker, Token: r.token, Worker: r.worker.name, Lease: r.p.policy.Lease, End: p}, true
}

// take occupies room, or returns what counts why there is none.
func (r *receiver) take(p *room) (refused *atomic.Int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.open || r.p.throttle.exhausted():
		return &r.stats.unfit
	case r.taken+p.rows > r.p.throttle.allows(r.room):
		return &r.stats.full
	case !r.p.shards.admit(&p.shards):
		return &r.stats.busy
	}
	r.taken += p.rows
	return nil
}

// EndPlace implements PlaceEnder: the rows are queued, or the room is free again.
func (p *room) EndPlace(rows []outbox.Row, committed bool) {
	r := p.at
	r.mu.Lock()
	committed = committed && !r.over // else the lease returns them
	if committed {
		for i := range rows {
			if row := &rows[i]; row.TargetBroker == r.p.broker {
				shard := p.dialect.Shard(row)
				r.queues[shard] = append(r.queues[shard], copied{row, p.asked})
			}
		}
	} else {
		r.taken -= p.rows
	}
	r.mu.Unlock()
	if !committed {
		for shard, n := range p.shards {
			if n > 0 {
				r.p.shards.arrive(shard, n, false)
			}
		}
	}
	r.tell()
}

// handedBatch is what a verification makes of copies: a batch to deliver, and rows that go back.
type handedBatch struct {
	batch driver.Batch
	back  []driver.Outcome
	// strays go back, too, and are in other shards than we thought: the database hashes keys in
	// another way than this process, as one that is not in UTF-8 does.
	strays []driver.Completion
}

// newHandedBatch puts together copies and what the database says of them. Where nothing may be
// sent, all that is ours goes back.
func newHandedBatch(r *receiver, shard int, copies []copied, found []driver.HandedRow, may bool) *handedBatch {
	b := &handedBatch{batch: driver.Batch{Lease: r.leaseOf(shard)}}
	byID := make(map[uuid.UUID]*outbox.Row, len(copies))
	for i := range copies {
		byID[copies[i].row.MessageID] = copies[i].row
	}
	slices.SortFunc(found, func(a, b driver.HandedRow) int { return cmp.Compare(a.ID, b.ID) })
	here, held := 0, map[string]bool{}
	for i := range found {
		f := &found[i]
		row := byID[f.MessageID]
		if row == nil { // no answer to our question
			continue
		}
		here++
		m := handedMessage(f, row)
		if !f.Clear && !r.p.policy.Unordered && row.OrderingKey != "" { // whatever a store says of the later ones
			held[row.OrderingKey] = true
		}
		switch {
		case f.Shard != shard:
			stray := driver.Completion{Lease: r.leaseOf(f.Shard), Other: []driver.Outcome{release(&m)}}
			stray.Lease.FirstID, stray.Lease.LastID = f.ID, f.ID
			b.strays = append(b.strays, stray)
			r.stats.behind.Add(1)
			continue
		case may && f.Clear && !held[row.OrderingKey]:
			b.batch.Messages = append(b.batch.Messages, m)
			r.stats.sent.Add(1)
		case may:
			b.back = append(b.back, release(&m))
			r.stats.behind.Add(1)
		default:
			b.back = append(b.back, release(&m))
			r.stats.withdrawn.Add(1)
		}
		if b.batch.Lease.FirstID == 0 {
			b.batch.Lease.FirstID = f.ID
		}
		b.batch.Lease.LastID = f.ID
	}
	r.stats.gone.Add(int64(len(copies) - here))
	r.p.counters.released.Add(int64(len(b.back) + len(b.strays)))
	return b
}

func (r *receiver) leaseOf(shard int) driver.Lease {
	return driver.Lease{Broker: r.p.broker, Shard: shard, Token: r.token, Duration: r.p.policy.Lease}
}

// handedMessage is what a claim would have returned.
func handedMessage(f *driver.HandedRow, row *outbox.Row) driver.Message {
	return driver.Message{
		ID: f.ID, MessageID: row.MessageID.String(), Stream: row.Stream, Type: row.Type, OrderingKey: row.OrderingKey, Priority: row.Priority,
		ContentType: cmp.Or(row.ContentType, "application/json"), Payload: row.Payload, Headers: row.Headers, CorrelationID: row.CorrelationID,
		Attempts: f.Attempts, Crashes: f.Crashes, Expired: f.Expired, CreatedAt: f.CreatedAt,
	}
}

// admit counts rows that are about to be handed off, unless a shard of theirs has work, in whatever
// class, or is in a worker's hands: then an earlier row of their keys may be waiting. Nor are there
// any while one that was marked may wait for those on their way, which it could do for ever if more
// and more joined them. rows are by shard of a class.
func (b *shardBoard) admit(rows *[outbox.Shards]int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	for shard := range b.shards {
		if rows[shard] == 0 {
			continue
		}
		if b.taken[shard] {
			return false
		}
		for class := range outbox.Classes {
			if other := class*b.shards + shard; b.dirty[other] || b.behind[other] {
				return false
			}
		}
	}
	for shard := range b.shards {
		b.handed[shard] += rows[shard]
	}
	return true
}

// arrive says that rows of a shard are on their way no more. back says that some went back to the
// database. What was marked meanwhile is marked again: a claim may have found the keys held. Not
// before all are there, for it could be those that hold.
func (b *shardBoard) arrive(shard, rows int, back bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handed[shard] -= rows
	if back {
		b.markDirty(shard)
	}
	if b.handed[shard] == 0 {
		for class := range outbox.Classes {
			if other := class*b.shards + shard; b.behind[other] {
				b.behind[other] = false
				b.markDirty(other)
			}
		}
	}
	b.broadcast()
}
