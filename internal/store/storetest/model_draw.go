package storetest

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/explore"
)

// A move is something that can happen in a schedule, more often the more it weighs.
type move struct {
	name     string
	weight   int
	possible bool
	do       func(*rapid.T)
}

// next draws one of the moves that are possible.
func (run *modelRun) next(rt *rapid.T) {
	s := &run.state
	open := run.any(func(r *explore.Row) bool { return !r.Status.Terminal() })
	var names []string
	moves := map[string]func(*rapid.T){}
	for _, m := range []move{
		{"write", weight(2*len(s.Rows) < run.most, 4), len(s.Rows) < run.most && len(s.Ledger) < modelRows-maxWrite, run.write},
		{"claim", weight(len(s.Ready()) > 0, 8), open && len(run.workers(explore.Idle)) > 0, run.claim},
		{"send", 6, len(run.senders()) > 0, run.send},
		{"complete", 6, len(run.completers()) > 0, run.complete},
		{"renew", 1, len(run.workers(explore.Working)) > 0, run.renew},
		{"crash", 1, len(run.workers(explore.Working, explore.Asking)) > 0, run.crash},
		{"lease ends", 3, run.any(leased), run.leaseEnds},
		{"time comes", 3, run.any(waits), run.timeComes},
		{"defer", 4, run.any(waits) || len(s.Blocks) > 0 && open, run.deferRows},
		{"operator", 2, len(s.Rows) > 0, run.operate},
		{"purge", 1, run.any(finished), run.purgeSome},
	} {
		if m.possible {
			names = append(names, slices.Repeat([]string{m.name}, m.weight)...)
			moves[m.name] = m.do
		}
	}
	moves[rapid.SampledFrom(names).Draw(rt, "move")](rt)
}

// weight is more where it fits.
func weight(fits bool, more int) int {
	if fits {
		return more
	}
	return 1
}

func waits(r *explore.Row) bool    { return r.Status != explore.Processing && r.Waits } // in backoff, or scheduled for later
func leased(r *explore.Row) bool   { return r.Status == explore.Processing && r.Waits }
func finished(r *explore.Row) bool { return r.Status.Terminal() }

func (run *modelRun) any(fits func(*explore.Row) bool) bool { return len(run.rows(fits)) > 0 }

// rows lists the ids of rows that fit.
func (run *modelRun) rows(fits func(*explore.Row) bool) (ids []int) {
	for i := range run.state.Rows {
		if fits(&run.state.Rows[i]) {
			ids = append(ids, run.state.Rows[i].ID)
		}
	}
	return ids
}

// workers lists those that are about something.
func (run *modelRun) workers(phases ...explore.Phase) (workers []int) {
	for i := range run.state.Workers {
		if slices.Contains(phases, run.state.Workers[i].Phase) {
			workers = append(workers, i)
		}
	}
	return workers
}

// completers lists the workers that have a batch, and nothing of it with the broker.
func (run *modelRun) completers() []int {
	return slices.DeleteFunc(run.workers(explore.Working, explore.Asking), func(i int) bool { return len(run.state.Workers[i].Flying()) > 0 })
}

// senders lists the workers that can send something or wait for an answer of the broker.
func (run *modelRun) senders() []int {
	return slices.DeleteFunc(run.workers(explore.Working), func(i int) bool {
		w := &run.state.Workers[i]
		return len(w.Flying()) == 0 && (w.Late || !w.Undecided())
	})
}

// draw takes one of several numbers.
func draw(rt *rapid.T, numbers []int, what string) int {
	if len(numbers) == 0 {
		rt.Skip("no " + what)
	}
	return rapid.SampledFrom(numbers).Draw(rt, what)
}

// oneIn is true once in n times.
func oneIn(rt *rapid.T, n int, what string) bool { return rapid.IntRange(1, n).Draw(rt, what) == n }

// try does an action that was drawn.
func (run *modelRun) try(rt *rapid.T, a explore.Action) {
	if _, ok := run.do(rt, &a); !ok {
		rt.Skip("not possible")
	}
}

const maxWrite = 6

// write commits some rows: with and without a key, of each class, some of them scheduled for later.
func (run *modelRun) write(rt *rapid.T) {
	rows := make([]explore.NewRow, rapid.IntRange(1, min(maxWrite, run.most-len(run.state.Rows))).Draw(rt, "rows"))
	for i := range rows {
		rows[i].Key = rapid.IntRange(0, len(run.keys)).Draw(rt, "key")
		rows[i].Size = rapid.IntRange(1, 9).Draw(rt, "size")
		rows[i].Scheduled = oneIn(rt, 10, "scheduled")
		switch {
		case oneIn(rt, 5, "low priority"):
			rows[i].Class = explore.Backfill
		case rows[i].Key == 0 && rapid.Bool().Draw(rt, "high priority"):
			rows[i].Class = explore.Urgent
		}
	}
	run.try(rt, explore.Action{Kind: explore.Write, Rows: rows})
}

func (run *modelRun) drawRequest(rt *rapid.T) explore.Request {
	shards := run.state.Ready()
	if len(shards) == 0 || oneIn(rt, 8, "any shard") {
		shards = []explore.Class{explore.Normal, explore.Backfill, explore.Urgent}
	}
	r := explore.Request{Shard: rapid.SampledFrom(shards).Draw(rt, "shard"), Limit: rapid.IntRange(1, 9).Draw(rt, "limit")}
	r.Window = r.Limit + rapid.IntRange(0, 20).Draw(rt, "further")
	if oneIn(rt, 3, "few bytes") {
		r.Bytes = rapid.IntRange(1, 30).Draw(rt, "bytes")
	}
	r.Wake = !oneIn(rt, 5, "without waking")
	r.Unordered = run.anyOutcome && oneIn(rt, 5, "unordered")
	return r
}

// drawFate says whether a worker learns of what the database has done for it.
func drawFate(rt *rapid.T) explore.Fate {
	if oneIn(rt, 10, "answer lost") {
		return explore.Lost
	}
	return explore.Known
}

func (run *modelRun) claim(rt *rapid.T) {
	worker := draw(rt, run.workers(explore.Idle), "worker")
	run.try(rt, explore.Action{Kind: explore.Claim, Worker: worker, Request: run.drawRequest(rt), Fate: drawFate(rt)})
}

// complete writes the outcomes of a batch, and half of the time makes the next claim in the same
// exchange.
func (run *modelRun) complete(rt *rapid.T) {
	worker := draw(rt, run.completers(), "worker")
	complete := &explore.Action{Kind: explore.Complete, Worker: worker, Fate: drawFate(rt)}
	if run.anyOutcome {
		complete.Outcomes = drawOutcomes(rt, run.state.Workers[worker].Outcomes())
	}
	var claim *explore.Action
	if complete.Fate == explore.Known && rapid.Bool().Draw(rt, "and claim") {
		claim = &explore.Action{Kind: explore.Claim, Worker: worker, Request: run.drawRequest(rt)}
	}
	run.exchange(rt, complete, claim)
}

// drawOutcomes draws what no worker would say, and not about every row.
func drawOutcomes(rt *rapid.T, of []explore.Outcome) []explore.Outcome {
	outcomes := []explore.Outcome{}
	for _, o := range of {
		switch rapid.SampledFrom([]string{"as it is", "published", "retry", "later", "abandoned", "released", "put off", "forgotten"}).Draw(rt, "outcome") {
		case "published":
			o = explore.Outcome{ID: o.ID, Status: explore.Published, Spent: true}
		case "retry":
			o = explore.Outcome{ID: o.ID, Status: explore.Failed, Spent: true}
		case "later":
			o = explore.Outcome{ID: o.ID, Status: explore.Failed, Wait: true, Spent: true}
		case "abandoned":
			o = explore.Outcome{ID: o.ID, Status: explore.Abandoned, Spent: rapid.Bool().Draw(rt, "spent")}
		case "released":
			o = explore.Outcome{ID: o.ID, Status: explore.Pending}
		case "put off":
			o = explore.Outcome{ID: o.ID, Status: explore.Pending, Wait: true}
		case "forgotten":
			continue
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// send hands rows of a batch to the broker and draws what becomes of them, which is nothing that
// the store sees.
func (run *modelRun) send(rt *rapid.T) {
	worker := draw(rt, run.senders(), "worker")
	flying := func() bool { return len(run.state.Workers[worker].Flying()) > 0 }
	if !flying() {
		run.try(rt, explore.Action{Kind: explore.Send, Worker: worker, Limit: rapid.IntRange(1, 4).Draw(rt, "chunk")})
	}
	results := append(slices.Repeat([]explore.Result{explore.Accepted}, 5),
		explore.AnswerLost, explore.Retryable, explore.Refused, explore.Unavailable, explore.Closed)
	for flying() && !oneIn(rt, 10, "no answer yet") {
		run.try(rt, explore.Action{Kind: explore.Answer, Worker: worker, Result: rapid.SampledFrom(results).Draw(rt, "result")})
	}
}

func (run *modelRun) renew(rt *rapid.T) {
	run.try(rt, explore.Action{Kind: explore.Renew, Worker: draw(rt, run.workers(explore.Working), "worker"), Fate: drawFate(rt)})
}

// crash ends a worker's memory. The store is not asked.
func (run *modelRun) crash(rt *rapid.T) {
	run.try(rt, explore.Action{Kind: explore.Crash, Worker: draw(rt, run.workers(explore.Working, explore.Asking), "worker")})
}

// leaseEnds lets the lease of one claim run out, whether its worker lives or not.
func (run *modelRun) leaseEnds(rt *rapid.T) {
	row := run.state.Row(draw(rt, run.rows(leased), "row"))
	run.try(rt, explore.Action{Kind: explore.Expire, Token: row.Token})
}

// timeComes ends the backoff or the schedule of one row, or of all of them.
func (run *modelRun) timeComes(rt *rapid.T) {
	ids := run.rows(waits)
	if rapid.Bool().Draw(rt, "one of them") {
		ids = []int{draw(rt, ids, "row")}
	}
	for _, id := range ids {
		run.try(rt, explore.Action{Kind: explore.Pass, ID: id})
	}
}

func (run *modelRun) deferRows(rt *rapid.T) {
	request := run.drawRequest(rt)
	request.Wake = false
	run.try(rt, explore.Action{Kind: explore.Defer, Request: request})
}

// purgeSome removes what is finished. A row can have been a block.
func (run *modelRun) purgeSome(rt *rapid.T) {
	status := run.state.Row(draw(rt, run.rows(finished), "row")).Status
	run.try(rt, explore.Action{Kind: explore.Mark, Status: status, Limit: len(run.state.Rows)})
	run.try(rt, explore.Action{Kind: explore.Remove})
}

// operate is what operators do.
func (run *modelRun) operate(rt *rapid.T) {
	kind := rapid.SampledFrom([]explore.Kind{explore.Requeue, explore.Requeue, explore.Replay, explore.Drop, explore.UnblockKey}).Draw(rt, "kind")
	if kind == explore.UnblockKey {
		key := rapid.IntRange(1, len(run.keys)).Draw(rt, "key")
		run.try(rt, explore.Action{Kind: kind, Key: key})
		return
	}
	rows := run.rows(func(r *explore.Row) bool {
		switch kind {
		case explore.Requeue:
			return r.Status == explore.Abandoned || r.Status == explore.Failed || waits(r)
		case explore.Replay:
			return r.Status == explore.Published
		default:
			return r.Status == explore.Pending || r.Status == explore.Failed
		}
	})
	act := explore.Action{Kind: kind, ID: draw(rt, rows, "row")}
	if also := draw(rt, rows, "another row at once"); also != act.ID {
		act.Also = also
	}
	run.besides = nil
	for i := range run.state.Rows {
		r := &run.state.Rows[i]
		if r.ID > max(act.ID, act.Also) || r.Status == explore.Published && kind != explore.Replay || !r.Status.Terminal() && kind == explore.Replay {
			run.besides = append(run.besides, int64(r.ID)) // behind the limit, or of another status
		}
	}
	run.try(rt, act)
}

// finish lets everything through, as relays without faults and an operator would, and checks that
// nothing is left over.
func (run *modelRun) finish(rt *rapid.T) {
	must := func(a explore.Action) {
		_, ok := run.do(rt, &a)
		require.True(rt, ok, "%s in\n%s", explore.Describe(&a, &explore.Reply{}), &run.state)
	}
	for i := range run.state.Workers {
		run.deliver(i, must)
	}
	open := func(r *explore.Row) bool { return r.Status != explore.Published }
	for round := 0; run.any(open) || len(run.state.Blocks) > 0; round++ {
		require.Less(rt, round, 100, "it does not end:\n%s", &run.state)
		for run.any(leased) {
			must(explore.Action{Kind: explore.Expire, Token: run.state.Row(run.rows(leased)[0]).Token})
		}
		for _, g := range slices.Clone(run.state.Blocks) {
			if r := run.state.Row(g.Row); r == nil && g.Wake == explore.Rests {
				must(explore.Action{Kind: explore.Pass, ID: g.Row})
			}
		}
		for run.any(waits) {
			must(explore.Action{Kind: explore.Pass, ID: run.rows(waits)[0]})
		}
		for _, id := range run.rows(func(r *explore.Row) bool { return r.Status == explore.Abandoned }) {
			must(explore.Action{Kind: explore.Requeue, ID: id})
		}
		for key := range len(run.keys) {
			if slices.ContainsFunc(run.state.Blocks, func(g explore.Block) bool { return g.Key == key+1 && g.Wake == explore.Operator }) {
				must(explore.Action{Kind: explore.UnblockKey, Key: key + 1})
			}
		}
		for class := range explore.Classes {
			must(explore.Action{Kind: explore.Claim, Request: explore.Request{Shard: class, Limit: modelRows, Window: modelRows, Wake: true}})
			run.deliver(0, must)
		}
	}
	require.False(rt, run.any(func(r *explore.Row) bool { return r.Deferred }))
	run.compare(rt)
}

// deliver has a worker publish and complete what it has claimed.
func (run *modelRun) deliver(worker int, must func(explore.Action)) {
	for {
		w := &run.state.Workers[worker]
		switch {
		case w.Phase == explore.Idle:
			return
		case len(w.Flying()) > 0:
			must(explore.Action{Kind: explore.Answer, Worker: worker})
		case w.Phase == explore.Working && w.Undecided() && !w.Late:
			must(explore.Action{Kind: explore.Send, Worker: worker, Limit: modelRows})
		default:
			must(explore.Action{Kind: explore.Complete, Worker: worker})
		}
	}
}
