package outbox

import (
	"sync/atomic"
	"time"
)

// reserve finds room for the rows of this processor's broker, for all or for none.
func (r *receiver) reserve(dialect Dialect, rows []Row) (p place, ok bool) {
	p = place{at: r, dialect: dialect, asked: time.Now()}
	fit := dialect.shards() == r.p.store.Shards() && r.p.running.Load() && !r.p.paused.Load() && r.p.breaker.closed()
	for i := range rows {
		if row := &rows[i]; row.TargetBroker == r.p.broker {
			fit = fit && row.AvailableAt.IsZero() && row.Priority == 0 && (row.ExpiresAt.IsZero() || row.ExpiresAt.After(p.asked))
			p.rows++
			if fit {
				p.shards[dialect.share(row.OrderingKey, row.MessageID)]++
			}
		}
	}
	if p.rows == 0 {
		return p, false
	}
	reason := &r.stats.unfit
	if fit {
		reason = r.take(&p)
	}
	if reason != nil {
		reason.Add(int64(p.rows))
	}
	return p, reason == nil
}

// take occupies room, or returns what counts why there is none.
func (r *receiver) take(p *place) (refused *atomic.Int64) {
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

// complete ends a place: the rows are queued, or the room is free again.
func (r *receiver) complete(p *place, rows []Row, committed bool) {
	r.mu.Lock()
	committed = committed && !r.over // else the lease returns them
	if committed {
		for i := range rows {
			if row := &rows[i]; row.TargetBroker == r.p.broker {
				shard := p.dialect.share(row.OrderingKey, row.MessageID)
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
