package explore

import (
	"fmt"
	"slices"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// What operators and the purge do. What becomes of rows and of the blocks of their keys, the core
// decides; a store reads both and writes what it says, under the locks of the shards.

// acts are what operators do to rows.
var acts = map[Kind]core.Act{Requeue: core.Requeue, Replay: core.Replay, Drop: core.Abandon}

// operate does what an operator does to rows, all in one transaction.
func (p *Protocol) operate(t *Table, act core.Act, ids ...int) error {
	slices.Sort(ids)
	rows := make([]core.Operand, 0, len(ids))
	for _, id := range ids {
		r := t.Row(id)
		if r == nil {
			return fmt.Errorf("there is no row %d", id)
		}
		rows = append(rows, operand(r))
	}
	blocks := t.entries()
	if p.is(requeueIgnoresBlocks) {
		blocks = nil
	}
	repair := core.Operate(act, rows, blocks)
	if len(repair.Rows) < len(ids) {
		return fmt.Errorf("of the rows %d some cannot be repaired so", ids)
	}
	for i := range repair.Forget {
		t.removeBlock(int(repair.Forget[i].ID))
	}
	t.move(repair.Moves)
	for i := range repair.Rows {
		r := t.Row(int(repair.Rows[i].ID))
		if act == core.Abandon {
			r.Status, r.Waits, r.Scheduled, r.Token, r.Isolated, r.Deferred = Abandoned, false, false, 0, false, false
			continue
		}
		r.Status, r.Waits, r.Scheduled, r.Token, r.Attempts, r.Crashes, r.Isolated = Pending, false, false, 0, 0, 0, false
		r.Deferred = repair.Behind[i]
	}
	t.Version++
	return nil
}

// operand is a row as a store reads it.
func operand(r *Row) core.Operand {
	return core.Operand{
		Ref: driver.Ref{ID: int64(r.ID)}, Key: keyText(r.Key), Shard: int(r.Class), Status: outbox.Status(r.Status.String()), Waits: r.Waits,
	}
}

// entries are the blocks as a store reads them.
func (t *Table) entries() []core.Block {
	blocks := make([]core.Block, len(t.Blocks))
	for i, g := range t.Blocks {
		blocks[i] = core.Block{
			Ref: driver.Ref{ID: int64(g.Row)}, Key: keyText(g.Key), Shard: int(g.Shard), Operator: g.Wake == Operator, Back: g.Wake == Back,
		}
	}
	return blocks
}

// move writes where blocks are from now on.
func (t *Table) move(moves []core.Move) {
	for i := range moves {
		m := &moves[i]
		g := *t.block(int(m.ID))
		t.removeBlock(g.Row)
		g.Row, g.Wake = int(m.To.ID), Back
		t.addBlock(g)
	}
}

// unblockKey lets a key go on that waits for an operator, without the abandoned row: in each class in
// which it does.
func (*Protocol) unblockKey(t *Table, key int) (classes []Class, err error) {
	moves := core.Unblock(slices.DeleteFunc(t.entries(), func(b core.Block) bool { return b.Key != keyText(key) }))
	if len(moves) == 0 {
		return nil, fmt.Errorf("key %d does not wait for an operator", key)
	}
	for i := range moves {
		classes = append(classes, Class(moves[i].Shard)) //nolint:gosec // one of the model's
	}
	t.move(moves)
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
