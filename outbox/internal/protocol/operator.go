package protocol

import (
	"fmt"
	"slices"
)

// What operators and the purge do. Rows that a worker has claimed are left alone until their lease
// is over.

// requeue makes a row pending again with a fresh budget of attempts: a failed or abandoned one, one
// that waits, and, for a replay, a published one. It takes its old place: where its key has a block
// behind it or is the block itself, it becomes the block, so that what comes later waits for it. A
// key that waits for an operator stays as it is, unless this is its row.
func (p *Protocol) requeue(t *Table, id int, replay bool) error {
	r := t.Row(id)
	if r == nil || r.inHand() || replay != (r.Status == Published) || r.Status == Pending && !r.Waits {
		return fmt.Errorf("row %d cannot be requeued", id)
	}
	if g := t.block(id); g != nil && g.Key == 0 {
		t.removeBlock(id)
	}
	g := t.blockOf(r.Key, r.Class)
	if g != nil && id <= g.Row && (g.Wake != Operator || g.Row == id) && !p.is(requeueIgnoresBlocks) {
		t.removeBlock(g.Row)
		t.addBlock(Block{Row: id, Key: r.Key, Shard: r.Class, Wake: Back})
	}
	r.Status, r.Waits, r.Token, r.Attempts, r.Crashes, r.Isolated = Pending, false, 0, 0, 0, false
	r.Deferred = t.behindBlock(r)
	t.Version++
	return nil
}

// drop abandons a row that nobody has claimed. Its key goes on.
func (p *Protocol) drop(t *Table, id int) error {
	r := t.Row(id)
	if r == nil || r.inHand() || !r.open() {
		return fmt.Errorf("row %d cannot be abandoned by hand", id)
	}
	switch g := t.block(id); {
	case g == nil || p.is(requeueIgnoresBlocks):
	case g.Key == 0:
		t.removeBlock(id)
	default:
		g.Wake = Back
	}
	r.Status, r.Waits, r.Token, r.Isolated, r.Deferred = Abandoned, false, 0, false, false
	t.Version++
	return nil
}

// unblockKey lets a key go on that waits for an operator, without the abandoned row: in each class in
// which it does.
func (*Protocol) unblockKey(t *Table, key int) (classes []Class, err error) {
	for class := range Classes {
		if g := t.blockOf(key, class); g != nil && g.Wake == Operator {
			g.Wake = Back
			classes = append(classes, class)
		}
	}
	if len(classes) == 0 {
		return nil, fmt.Errorf("key %d does not wait for an operator", key)
	}
	t.Version++
	return classes, nil
}

// victims lists the rows that a purge would remove: not those for which a key waits until an
// operator acts.
func (*Protocol) victims(t *Table, status Status, limit int) (ids []int) {
	for i := range t.Rows {
		r := &t.Rows[i]
		g := t.block(r.ID)
		blocks := g != nil && g.Wake == Operator
		if r.Status == status && !blocks && len(ids) < limit {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// remove removes the victims that are still what they were.
func (p *Protocol) remove(t *Table, ids []int, status Status) (removed []int) {
	t.Rows = slices.DeleteFunc(t.Rows, func(r Row) bool {
		gone := slices.Contains(ids, r.ID) && (r.Status == status || p.is(purgesBlindly))
		if gone {
			removed = append(removed, r.ID)
		}
		return gone
	})
	return removed
}
