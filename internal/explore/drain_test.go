package explore

import (
	"fmt"
	"reflect"
	"slices"
)

// A drain lets a world run on from a state without further faults, as relays would: whoever has
// claimed rows sends and completes them, leases of the dead run out, shards that are ready are
// claimed from, and times come. In the end every row must be finished. Every state on the way to a
// good end is good, and remembered.
type drain struct {
	*world

	good map[fingerprint]bool
}

// maxDrain is more actions than any small world needs to end.
const maxDrain = 2000

func (d *drain) run(s State, at fingerprint) *finding {
	var (
		way   []fingerprint
		trace []ScenarioStep
	)
	for range maxDrain {
		if d.good[at] {
			break
		}
		way = append(way, at)
		a, ok := d.next(&s)
		if !ok {
			if stuck := d.unfinished(&s); stuck != "" {
				return &finding{Violation{Progress, stuck}, trace}
			}
			break
		}
		next, reply, err := d.protocol.Step(&s, &a)
		if err != nil {
			panic(fmt.Sprintf("%v: %s\n%s", err, Describe(&a, &reply), s.String()))
		}
		step := scenarioStep(&a, &reply)
		step.Text = "no more faults: " + step.Text
		trace = append(trace, step)
		s = next
		at = (&node{State: s}).fingerprint()
		if len(way) == maxDrain-1 {
			return &finding{Violation{Progress, "the world runs on forever"}, trace[:30]}
		}
	}
	for _, at := range way {
		d.good[at] = true
	}
	return nil
}

// unfinished says what is left that should not be.
func (d *drain) unfinished(s *State) string {
	for i := range s.Rows {
		r := &s.Rows[i]
		g := s.blockOf(r.Key, r.Class)
		switch {
		case r.open() && (g == nil || g.Wake != Operator || g.Row >= r.ID || !waitsForOperator(s, g.Row)):
			return fmt.Sprintf("row %d stays %s forever, nothing more happens", r.ID, r.Status)
		case r.ID == d.poison && r.Status == Published:
			return fmt.Sprintf("row %d is published although nobody survives to send it", r.ID)
		}
	}
	return ""
}

// waitsForOperator reports whether a block's row is one that an operator can do something about, or
// was purged.
func waitsForOperator(s *State, block int) bool {
	r := s.Row(block)
	return r == nil || r.Status == Abandoned
}

// next is what happens next; ok is false when nothing more does.
func (d *drain) next(s *State) (a Action, ok bool) {
	if len(s.Plans) > 0 {
		return Action{Kind: Apply}, true
	}
	for i := range s.Workers {
		w := &s.Workers[i]
		flying := w.Flying()
		switch {
		case w.Phase == Idle:
			continue
		case w.Phase == Choosing:
			return Action{Kind: Take, Worker: i}, true
		case len(flying) > 0 && flying[0] == d.poison:
			return Action{Kind: Crash, Worker: i}, true
		case len(flying) > 0:
			return Action{Kind: Answer, Worker: i}, true
		case w.Phase == Working && w.Undecided() && !w.Late:
			return Action{Kind: Send, Worker: i, Limit: d.chunk}, true
		default:
			return Action{Kind: Complete, Worker: i}, true
		}
	}
	if len(s.Victims) > 0 {
		return Action{Kind: Remove}, true
	}
	for i := range s.Rows {
		if r := &s.Rows[i]; r.leased() && r.Waits {
			return Action{Kind: Expire, Token: r.Token}, true
		}
	}
	for _, shard := range s.Ready() {
		if a, ok := d.visit(s, shard); ok {
			return a, true
		}
	}
	return d.pass(s)
}

// visit is what a worker does with a shard that is ready: it claims with a window that grows, and
// defers what fills it. ok is false when that changes nothing.
func (d *drain) visit(s *State, shard Class) (a Action, ok bool) {
	limit := slices.Max(d.limits)
	for window := limit; window <= 16*limit; window *= 2 {
		claim := Action{Kind: Claim, Request: Request{Shard: shard, Limit: limit, Window: window, Wake: s.brings(shard)}}
		next, reply, err := d.protocol.Step(s, &claim)
		if err != nil {
			panic(err)
		}
		if len(reply.Rows) > 0 || !reflect.DeepEqual(next.Table, s.Table) {
			return claim, true
		}
		full := reply.Seen >= window && 2*reply.Waiting >= reply.Seen
		if full {
			deferRows := Action{Kind: Defer, Request: Request{Shard: shard, Window: len(s.Rows)}}
			if _, reply, err := d.protocol.Step(s, &deferRows); err == nil && reply.Deferred > 0 {
				return deferRows, true
			}
		}
		if reply.Seen < window {
			break
		}
	}
	return Action{}, false
}

// pass lets a time come.
func (*drain) pass(s *State) (a Action, ok bool) {
	for _, g := range s.Blocks {
		if g.Wake == Rests {
			return Action{Kind: Pass, ID: g.Row}, true
		}
	}
	for i := range s.Rows {
		if r := &s.Rows[i]; !r.leased() && r.Waits {
			return Action{Kind: Pass, ID: r.ID}, true
		}
	}
	return Action{}, false
}
