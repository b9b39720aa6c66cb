package storetest

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox/internal/protocol"
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
	open := run.any(func(r *protocol.Row) bool { return !r.Status.Terminal() })
	var names []string
	moves := map[string]func(*rapid.T){}
	for _, m := range []move{
		{"write", weight(2*len(s.Rows) < run.most, 4), len(s.Rows) < run.most && len(s.Ledger) < modelRows-maxWrite, run.write},
		{"claim", weight(len(s.Ready()) > 0, 8), open && len(run.workers(protocol.Idle)) > 0, run.claim},
		{"send", 6, len(run.senders()) > 0, run.send},
		{"complete", 6, len(run.completers()) > 0, run.complete},
		{"renew", 1, len(run.workers(protocol.Working)) > 0, run.renew},
		{"crash", 1, len(run.workers(protocol.Working, protocol.Asking)) > 0, run.crash},
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

func waits(r *protocol.Row) bool    { return r.Status != protocol.Processing && r.Waits } // in backoff, or scheduled for later
func leased(r *protocol.Row) bool   { return r.Status == protocol.Processing && r.Waits }
func finished(r *protocol.Row) bool { return r.Status.Terminal() }

func (run *modelRun) any(fits func(*protocol.Row) bool) bool { return len(run.rows(fits)) > 0 }

// rows lists the ids of rows that fit.
func (run *modelRun) rows(fits func(*protocol.Row) bool) (ids []int) {
	for i := range run.state.Rows {
		if fits(&run.state.Rows[i]) {
			ids = append(ids, run.state.Rows[i].ID)
		}
	}
	return ids
}

// workers lists those that are about something.
func (run *modelRun) workers(phases ...protocol.Phase) (workers []int) {
	for i := range run.state.Workers {
		if slices.Contains(phases, run.state.Workers[i].Phase) {
			workers = append(workers, i)
		}
	}
	return workers
}

// completers lists the workers that have a batch, and nothing of it with the broker.
func (run *modelRun) completers() []int {
	return slices.DeleteFunc(run.workers(protocol.Working, protocol.Asking), func(i int) bool { return len(run.state.Workers[i].Flying()) > 0 })
}

// senders lists the workers that can send something or wait for an answer of the broker.
func (run *modelRun) senders() []int {
	return slices.DeleteFunc(run.workers(protocol.Working), func(i int) bool {
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
func (run *modelRun) try(rt *rapid.T, a protocol.Action) {
	if _, ok := run.do(rt, &a); !ok {
		rt.Skip("not possible")
	}
}

const maxWrite = 6

// write commits some rows: with and without a key, of each class, some of them scheduled for later.
func (run *modelRun) write(rt *rapid.T) {
	rows := make([]protocol.NewRow, rapid.IntRange(1, min(maxWrite, run.most-len(run.state.Rows))).Draw(rt, "rows"))
	for i := range rows {
		rows[i].Key = rapid.IntRange(0, len(run.keys)).Draw(rt, "key")
		rows[i].Size = rapid.IntRange(1, 9).Draw(rt, "size")
		rows[i].Scheduled = oneIn(rt, 10, "scheduled")
		switch {
		case oneIn(rt, 5, "low priority"):
			rows[i].Class = protocol.Backfill
		case rows[i].Key == 0 && rapid.Bool().Draw(rt, "high priority"):
			rows[i].Class = protocol.Urgent
		}
	}
	run.try(rt, protocol.Action{Kind: protocol.Write, Rows: rows})
}

func (run *modelRun) drawRequest(rt *rapid.T) protocol.Request {
	shards := run.state.Ready()
	if len(shards) == 0 || oneIn(rt, 8, "any shard") {
		shards = []protocol.Class{protocol.Normal, protocol.Backfill, protocol.Urgent}
	}
	r := protocol.Request{Shard: rapid.SampledFrom(shards).Draw(rt, "shard"), Limit: rapid.IntRange(1, 9).Draw(rt, "limit")}
	r.Window = r.Limit + rapid.IntRange(0, 20).Draw(rt, "further")
	if oneIn(rt, 3, "few bytes") {
		r.Bytes = rapid.IntRange(1, 30).Draw(rt, "bytes")
	}
	r.Wake = !oneIn(rt, 5, "without waking")
	r.Unordered = run.anyOutcome && oneIn(rt, 5, "unordered")
	return r
}

// drawFate says whether a worker learns of what the database has done for it.
func drawFate(rt *rapid.T) protocol.Fate {
	if oneIn(rt, 10, "answer lost") {
		return protocol.Lost
	}
	return protocol.Known
}

func (run *modelRun) claim(rt *rapid.T) {
	worker := draw(rt, run.workers(protocol.Idle), "worker")
	run.try(rt, protocol.Action{Kind: protocol.Claim, Worker: worker, Request: run.drawRequest(rt), Fate: drawFate(rt)})
}

// complete writes the outcomes of a batch, and half of the time makes the next claim in the same
// exchange.
func (run *modelRun) complete(rt *rapid.T) {
	worker := draw(rt, run.completers(), "worker")
	complete := &protocol.Action{Kind: protocol.Complete, Worker: worker, Fate: drawFate(rt)}
	if run.anyOutcome {
		complete.Outcomes = drawOutcomes(rt, run.state.Workers[worker].Outcomes())
	}
	var claim *protocol.Action
	if complete.Fate == protocol.Known && rapid.Bool().Draw(rt, "and claim") {
		claim = &protocol.Action{Kind: protocol.Claim, Worker: worker, Request: run.drawRequest(rt)}
	}
	run.exchange(rt, complete, claim)
}

// drawOutcomes draws what no worker would say, and not about every row.
func drawOutcomes(rt *rapid.T, of []protocol.Outcome) []protocol.Outcome {
	outcomes := []protocol.Outcome{}
	for _, o := range of {
		switch rapid.SampledFrom([]string{"as it is", "published", "retry", "later", "abandoned", "released", "put off", "forgotten"}).Draw(rt, "outcome") {
		case "published":
			o = protocol.Outcome{ID: o.ID, Status: protocol.Published, Spent: true}
		case "retry":
			o = protocol.Outcome{ID: o.ID, Status: protocol.Failed, Spent: true}
		case "later":
			o = protocol.Outcome{ID: o.ID, Status: protocol.Failed, Wait: true, Spent: true}
		case "abandoned":
			o = protocol.Outcome{ID: o.ID, Status: protocol.Abandoned, Spent: rapid.Bool().Draw(rt, "spent")}
		case "released":
			o = protocol.Outcome{ID: o.ID, Status: protocol.Pending}
		case "put off":
			o = protocol.Outcome{ID: o.ID, Status: protocol.Pending, Wait: true}
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
		run.try(rt, protocol.Action{Kind: protocol.Send, Worker: worker, Limit: rapid.IntRange(1, 4).Draw(rt, "chunk")})
	}
	results := append(slices.Repeat([]protocol.Result{protocol.Accepted}, 5),
		protocol.AnswerLost, protocol.Retryable, protocol.Refused, protocol.Unavailable, protocol.Closed)
	for flying() && !oneIn(rt, 10, "no answer yet") {
		run.try(rt, protocol.Action{Kind: protocol.Answer, Worker: worker, Result: rapid.SampledFrom(results).Draw(rt, "result")})
	}
}

func (run *modelRun) renew(rt *rapid.T) {
	run.try(rt, protocol.Action{Kind: protocol.Renew, Worker: draw(rt, run.workers(protocol.Working), "worker"), Fate: drawFate(rt)})
}

// crash ends a worker's memory. The store is not asked.
func (run *modelRun) crash(rt *rapid.T) {
	run.try(rt, protocol.Action{Kind: protocol.Crash, Worker: draw(rt, run.workers(protocol.Working, protocol.Asking), "worker")})
}

// leaseEnds lets the lease of one claim run out, whether its worker lives or not.
func (run *modelRun) leaseEnds(rt *rapid.T) {
	row := run.state.Row(draw(rt, run.rows(leased), "row"))
	run.try(rt, protocol.Action{Kind: protocol.Expire, Token: row.Token})
}

// timeComes ends the backoff or the schedule of one row, or of all of them.
func (run *modelRun) timeComes(rt *rapid.T) {
	ids := run.rows(waits)
	if rapid.Bool().Draw(rt, "one of them") {
		ids = []int{draw(rt, ids, "row")}
	}
	for _, id := range ids {
		run.try(rt, protocol.Action{Kind: protocol.Pass, ID: id})
	}
}

func (run *modelRun) deferRows(rt *rapid.T) {
	request := run.drawRequest(rt)
	request.Wake = false
	run.try(rt, protocol.Action{Kind: protocol.Defer, Request: request})
}

// purgeSome removes what is finished. A row can have been a block.
func (run *modelRun) purgeSome(rt *rapid.T) {
	status := run.state.Row(draw(rt, run.rows(finished), "row")).Status
	run.try(rt, protocol.Action{Kind: protocol.Mark, Status: status, Limit: len(run.state.Rows)})
	run.try(rt, protocol.Action{Kind: protocol.Remove})
}

// operate is what operators do.
func (run *modelRun) operate(rt *rapid.T) {
	kind := rapid.SampledFrom([]protocol.Kind{protocol.Requeue, protocol.Requeue, protocol.Replay, protocol.Drop, protocol.UnblockKey}).Draw(rt, "kind")
	if kind == protocol.UnblockKey {
		key := rapid.IntRange(1, len(run.keys)).Draw(rt, "key")
		run.try(rt, protocol.Action{Kind: kind, Key: key})
		return
	}
	rows := run.rows(func(r *protocol.Row) bool {
		switch kind {
		case protocol.Requeue:
			return r.Status == protocol.Abandoned || r.Status == protocol.Failed || waits(r)
		case protocol.Replay:
			return r.Status == protocol.Published
		default:
			return r.Status == protocol.Pending || r.Status == protocol.Failed
		}
	})
	act := protocol.Action{Kind: kind, ID: draw(rt, rows, "row")}
	if also := draw(rt, rows, "another row at once"); also != act.ID {
		act.Also = also
	}
	run.try(rt, act)
}
