package explore

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// fingerprint is the same for states that differ in nothing that counts: in the names of workers
// and tokens, and in numbers beyond those that make a difference.
type fingerprint [16]byte

func (n *node) fingerprint() fingerprint {
	e := encoder{State: &n.State}
	b := []byte{byte(n.faults), byte(n.failures), byte(n.repairs), byte(len(n.Rows))}
	for i := range n.Rows {
		r := &n.Rows[i]
		b = append(b, byte(r.ID), byte(r.Status), bits(r.Waits, r.Isolated, r.Deferred, r.Scheduled), e.token(r.Token), byte(r.Attempts), byte(r.Crashes))
	}
	for _, g := range n.Blocks {
		b = append(b, byte(g.Row), byte(g.Key), byte(g.Shard), byte(g.Wake), 0xfe)
	}
	for i := range n.Ledger {
		entry := &n.Ledger[i]
		b = append(b, byte(entry.ID), byte(min(entry.Delivered, 1)), bits(entry.Excused, entry.LetGo, entry.Back, entry.Shared, entry.Gone), byte(len(entry.Passed)))
		for _, id := range entry.Passed {
			b = append(b, byte(id))
		}
	}
	plans := make([][]byte, len(n.Plans))
	for i := range n.Plans {
		plans[i] = e.plan(&n.Plans[i])
	}
	slices.SortFunc(plans, bytes.Compare)
	b = append(append(b, bytes.Join(plans, []byte{0xfb})...), 0xfa)
	workers := make([][]byte, len(n.Workers))
	for i := range n.Workers {
		workers[i] = e.worker(i)
	}
	slices.SortFunc(workers, bytes.Compare) // who is who makes no difference
	b = append(append(b, bytes.Join(workers, []byte{0xfd})...), 0xfc, byte(n.Purging))
	for _, id := range n.Victims {
		b = append(b, byte(id))
	}
	sum := sha256.Sum256(b)
	return fingerprint(sum[:16])
}

type encoder struct{ *State }

// token names a token by the first row that carries it. Those that no row carries are all alike:
// they open nothing.
func (e encoder) token(token int) byte {
	if token == 0 {
		return 0
	}
	for i := range e.Rows {
		if e.Rows[i].Token == token {
			return byte(1 + i)
		}
	}
	return 0xff
}

// plan is what it would change; of its version it counts only whether that is still the table's.
func (e encoder) plan(plan *Plan) []byte {
	b := []byte{byte(plan.Shard), bits(plan.Version == e.Version, plan.Lifts)}
	for _, ids := range [][]int{plan.Blocks, plan.Rows} {
		for _, id := range ids {
			b = append(b, byte(id))
		}
		b = append(b, 0xf9)
	}
	for _, ids := range [][]driver.BlockState{plan.Lift.Wake, plan.Lift.Rest, plan.Lift.Drop} {
		for i := range ids {
			b = append(b, byte(ids[i].ID))
		}
		b = append(b, 0xf9)
	}
	for _, row := range plan.Lift.Admit {
		b = append(b, byte(row.ID))
	}
	b = append(b, 0xf9)
	for i := range plan.Lift.Free {
		f := &plan.Lift.Free[i]
		b = append(b, byte(f.Block.ID), bits(f.Move))
		for _, row := range f.Rows {
			b = append(b, byte(row.ID))
		}
	}
	return b
}

func (e encoder) worker(i int) []byte {
	w := &e.Workers[i]
	b := []byte{byte(w.Phase), e.token(w.Token), bits(w.Late, w.Undone, w.Version == e.Version)}
	for k := range w.Chosen {
		b = append(b, byte(w.Chosen[k]))
	}
	for k := range w.Batch {
		h := &w.Batch[k]
		b = append(b, byte(h.ID), byte(h.Attempts), bits(h.Sent, h.Decided), byte(h.Outcome.Status), bits(h.Outcome.Spent, h.Outcome.Wait))
	}
	return b
}

func bits(flags ...bool) (b byte) {
	for i, flag := range flags {
		if flag {
			b |= 1 << i
		}
	}
	return b
}
