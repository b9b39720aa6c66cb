package outbox

// admit counts rows that are about to be handed off, unless a shard of theirs has work, in whatever class, or is in a worker's hands:
// then an earlier row of their keys may be waiting. Nor are there any while one that was marked may wait for those on their way, which
// it could do for ever if more and more joined them. rows are by shard of a class.
func (b *shardBoard) admit(rows *[Shards]int) bool {
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
		for class := range Classes {
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

// arrive says that rows of a shard are on their way no more. back says that some went back to the database. What was marked
// meanwhile is marked again: a claim may have found the keys held. Not before all are there, for it could be those that hold.
func (b *shardBoard) arrive(shard, rows int, back bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handed[shard] -= rows
	if back {
		b.markDirty(shard)
	}
	if b.handed[shard] == 0 {
		for class := range Classes {
			if other := class*b.shards + shard; b.behind[other] {
				b.behind[other] = false
				b.markDirty(other)
			}
		}
	}
	b.broadcast()
}
