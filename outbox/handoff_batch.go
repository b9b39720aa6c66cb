package outbox

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// handedBatch is what a verification makes of copies: a batch to deliver, and rows that go back.
type handedBatch struct {
	batch Batch
	back  []Outcome
	// strays go back, too, and are in other shards than we thought: the database hashes keys in another way than this process, as
	// one that is not in UTF-8 does.
	strays []Completion
}

// newHandedBatch puts together copies and what the database says of them. Where nothing may be sent, all that is ours goes back.
func newHandedBatch(r *receiver, shard int, copies []copied, found []HandedRow, may bool) *handedBatch {
	b := &handedBatch{batch: Batch{Lease: r.leaseOf(shard)}}
	byID := make(map[uuid.UUID]*Row, len(copies))
	for i := range copies {
		byID[copies[i].row.MessageID] = copies[i].row
	}
	slices.SortFunc(found, func(a, b HandedRow) int { return cmp.Compare(a.ID, b.ID) })
	here, held := 0, map[string]bool{}
	for i := range found {
		f := &found[i]
		row := byID[f.MessageID]
		if row == nil { // no answer to our question
			continue
		}
		here++
		m := f.message(row)
		if !f.Clear && !r.p.policy.Unordered && row.OrderingKey != "" { // whatever a store says of the later ones
			held[row.OrderingKey] = true
		}
		switch {
		case f.Shard != shard:
			stray := Completion{Lease: r.leaseOf(f.Shard), Other: []Outcome{release(&m)}}
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

func (r *receiver) leaseOf(shard int) Lease {
	return Lease{Broker: r.p.broker, Shard: shard, Token: r.token, Duration: r.p.policy.Lease}
}

// message is what a claim would have returned.
func (f *HandedRow) message(row *Row) Message {
	return Message{
		ID: f.ID, MessageID: row.MessageID.String(), Stream: row.Stream, Type: row.Type, OrderingKey: row.OrderingKey, Priority: row.Priority,
		ContentType: cmp.Or(row.ContentType, "application/json"), Payload: row.Payload, Headers: row.Headers, CorrelationID: row.CorrelationID,
		Attempts: f.Attempts, Crashes: f.Crashes, Expired: f.Expired, CreatedAt: f.CreatedAt,
	}
}
