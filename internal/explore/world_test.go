package explore

import "slices"

// A world is a small instance of the protocol, with bounds for what can go wrong in it.
type world struct {
	name     string
	protocol Protocol
	workers  int
	rows     []NewRow // to be committed
	anyOrder bool     // rows of different keys become visible in any order
	unlocked bool     // rows of one key, too: nothing orders their writers
	shards   []Class
	limits   []int // of claims
	window   int
	chunk    int      // how many messages go to the broker at once
	results  []Result // that the broker may give, beside Accepted
	poison   int      // the row that kills whoever sends it

	faults, failures, repairs int // how many of each, at most

	undone bool // the database can lose a claim
	split  bool // claims in two halves
	held   bool // a window may show a row that another transaction writes
	stops  bool // a worker may stop before it has sent its batch
	defers bool // waiting rows are deferred
	purges bool
	repair []Kind // what operators do
	pairs  bool   // they may do it to two rows at once
}

// A node is a state of a world and what has gone wrong so far.
type node struct {
	State

	faults, failures, repairs int
}

// An option is an action that is possible, and what it takes from the bounds.
type option struct {
	Action

	fault, failure, repair int
}

// options lists what can happen next.
func (w *world) options(n *node) []option {
	o := &options{world: w, node: n}
	o.writes()
	idle := false
	for i := range n.Workers {
		switch worker := &n.Workers[i]; worker.Phase {
		case Idle:
			if !idle { // all idle workers are alike
				o.claims(i)
			}
			idle = true
		case Choosing:
			o.add(Action{Kind: Take, Worker: i})
			o.fault(Action{Kind: Crash, Worker: i})
		case Working:
			o.work(i, worker)
		case Asking:
			o.complete(i)
			o.add(Action{Kind: GiveUp, Worker: i})
		}
	}
	o.time()
	o.operators()
	return o.list
}

type options struct {
	*world
	*node

	list []option
}

func (o *options) add(a Action)    { o.list = append(o.list, option{Action: a}) }
func (o *options) fault(a Action)  { o.spend(option{Action: a, fault: 1}) }
func (o *options) repair(a Action) { o.spend(option{Action: a, repair: 1}) }

func (o *options) spend(c option) {
	if o.node.faults+c.fault <= o.world.faults && o.node.failures+c.failure <= o.world.failures && o.node.repairs+c.repair <= o.world.repairs {
		o.list = append(o.list, c)
	}
}

// writes commits a row. The writers of a key take turns, so its rows become visible in the order of
// their ids.
func (o *options) writes() {
	for i, n := range o.rows {
		if o.Entry(n.ID) != nil {
			continue
		}
		first := true
		for _, earlier := range o.rows[:i] {
			sameKey := earlier.Key == n.Key && n.Key != 0
			if (sameKey && !o.unlocked || !o.anyOrder && !o.unlocked) && o.Entry(earlier.ID) == nil {
				first = false
			}
		}
		if first {
			o.add(Action{Kind: Write, Rows: []NewRow{n}})
		}
	}
}

func (o *options) claims(worker int) {
	for _, shard := range o.shards {
		wakes := []bool{false}
		if o.brings(shard) {
			wakes = []bool{false, true}
		}
		for _, limit := range o.limits {
			for _, wake := range wakes {
				if wake && o.split { // blocks are lifted by plans
					continue
				}
				a := Action{Kind: Claim, Worker: worker, Request: Request{Shard: shard, Limit: limit, Window: max(o.window, limit), Wake: wake}}
				if o.split {
					a.Kind = Look
					o.reads(a)
					continue
				}
				o.reads(a)
				a.Fate = Lost
				o.fault(a)
				if o.undone {
					a.Fate = Undone
					o.fault(a)
				}
			}
		}
	}
}

// reads adds an action that reads a window, and what it is where another transaction is writing one
// of the rows.
func (o *options) reads(a Action) {
	o.add(a)
	if !o.held {
		return
	}
	for i := range o.Rows {
		if r := &o.Rows[i]; r.Class == a.Request.Shard && r.inShard() {
			a.Request.Held = r.ID
			o.add(a)
		}
	}
}

func (o *options) work(i int, w *Worker) {
	flying := w.Flying()
	if len(flying) > 0 && flying[0] == o.poison {
		o.add(Action{Kind: Crash, Worker: i})
		return
	}
	o.fault(Action{Kind: Crash, Worker: i})
	if r := o.Row(w.Batch[0].ID); r != nil && r.Token == w.Token && !r.Waits {
		o.add(Action{Kind: Renew, Worker: i}) // sent in time, and done late
		o.fault(Action{Kind: Renew, Worker: i, Fate: Lost})
	}
	if len(flying) > 0 {
		o.add(Action{Kind: Answer, Worker: i, Result: Accepted})
		for _, result := range o.results {
			c := option{Action: Action{Kind: Answer, Worker: i, Result: result}, failure: 1}
			if result == AnswerLost {
				c.fault, c.failure = 1, 0
			}
			o.spend(c)
		}
		return
	}
	canSend := w.Undecided() && (!w.Late || o.protocol.is(sendsLate))
	if canSend {
		o.add(Action{Kind: Send, Worker: i, Limit: o.chunk})
	}
	if !canSend || o.stops {
		o.complete(i)
	}
}

func (o *options) complete(i int) {
	w := &o.Workers[i]
	o.add(Action{Kind: Complete, Worker: i})
	o.fault(Action{Kind: Complete, Worker: i, Fate: Lost})
	if w.Phase == Working {
		o.fault(Action{Kind: Complete, Worker: i, Fate: Missed})
	}
}

// time lets leases run out and times come.
func (o *options) time() {
	seen := map[int]bool{}
	for i := range o.Rows {
		r := &o.Rows[i]
		switch {
		case r.leased() && r.Waits && !seen[r.Token]:
			seen[r.Token] = true
			expire := Action{Kind: Expire, Token: r.Token}
			if o.holder(r.Token) != nil {
				o.fault(expire) // its owner lives, and is slow
			} else {
				o.add(expire)
			}
		case !r.leased() && r.Waits:
			o.add(Action{Kind: Pass, ID: r.ID})
		}
	}
	for _, g := range o.Blocks {
		if r := o.Row(g.Row); r == nil && g.Wake == Rests {
			o.add(Action{Kind: Pass, ID: g.Row})
		}
	}
}

func (o *options) operators() {
	o.plans()
	if o.defers && !o.split {
		for _, shard := range o.shards {
			o.reads(Action{Kind: Defer, Request: Request{Shard: shard, Window: o.window}})
		}
	}
	for _, kind := range o.world.repair {
		act, ok := acts[kind]
		if !ok {
			continue
		}
		var others []int
		for i := range o.Rows {
			r := &o.Rows[i]
			if row := operand(r); !act.For(&row) {
				continue
			}
			o.repair(Action{Kind: kind, ID: r.ID})
			for _, other := range others {
				o.repair(Action{Kind: kind, ID: other, Also: r.ID})
			}
			if o.pairs {
				others = append(others, r.ID)
			}
		}
	}
	for _, g := range o.Blocks {
		if g.Wake == Operator && slices.Contains(o.world.repair, UnblockKey) {
			o.repair(Action{Kind: UnblockKey, Key: g.Key})
		}
	}
	if !o.purges {
		return
	}
	if len(o.Victims) > 0 {
		o.add(Action{Kind: Remove})
		return
	}
	for _, status := range []Status{Published, Abandoned} {
		if slices.ContainsFunc(o.Rows, func(r Row) bool { return r.Status == status }) {
			o.add(Action{Kind: Mark, Status: status, Limit: 2})
		}
	}
}

// maxPlans is how many changes of blocks are in progress at a time.
const maxPlans = 2

// plans are changes of blocks in two halves.
func (o *options) plans() {
	for i := range o.Plans {
		o.add(Action{Kind: Apply, ID: i})
		o.fault(Action{Kind: Forget, ID: i})
	}
	if !o.split || !o.defers || len(o.Plans) == maxPlans {
		return
	}
	for _, shard := range o.shards {
		for _, a := range []Action{
			{Kind: PlanDefer, Request: Request{Shard: shard, Window: o.window}},
			{Kind: PlanLift, Request: Request{Shard: shard, Limit: o.limits[0]}},
		} {
			if _, _, err := o.protocol.Step(&o.State, &a); err == nil {
				o.add(a)
			}
		}
	}
}
