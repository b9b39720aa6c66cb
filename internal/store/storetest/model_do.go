package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/explore"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// statuses of the model in the store's terms.
var statuses = map[explore.Status]outbox.Status{
	explore.Pending: outbox.StatusPending, explore.Processing: outbox.StatusProcessing, explore.Failed: outbox.StatusFailed,
	explore.Published: outbox.StatusPublished, explore.Abandoned: outbox.StatusAbandoned,
}

// do takes an action in the model and in the store. ok is false when the model says that it is not
// possible now.
func (run *modelRun) do(t modelT, a *explore.Action) (reply explore.Reply, ok bool) {
	switch a.Kind {
	case explore.Claim:
		return run.exchange(t, nil, a)
	case explore.Complete:
		return run.exchange(t, a, nil)
	case explore.Write:
		run.insertNew(t, a)
	case explore.Look, explore.Take: // a store does both in one statement
		return reply, false
	default:
	}
	before := run.state
	if reply, ok = run.step(t, a); !ok {
		return reply, false
	}
	switch a.Kind {
	case explore.Renew:
		kept, err := run.Store.Renew(run.Context(), run.leases[before.Workers[a.Worker].Token])
		require.NoError(t, err)
		require.Equal(t, reply.Kept, kept)
	case explore.Expire:
		run.exec("UPDATE {t} SET locked_until = "+run.sql.minus("locked_until", 2*lease)+" WHERE lock_token = "+run.sql.id("?"), run.leases[a.Token].Token.String())
	case explore.Pass:
		run.passRow(a.ID)
	case explore.Defer:
		deferred, err := run.Store.Defer(run.Context(), run.claimOf(a.Request))
		require.NoError(t, err)
		require.Equal(t, reply.Deferred, deferred)
	case explore.Requeue, explore.Replay, explore.Drop:
		run.act(t, a)
	case explore.UnblockKey:
		require.True(t, run.release(run.keyName(a.Key)))
	case explore.Remove:
		for _, column := range []string{"finished_at", "published_at"} {
			run.exec("UPDATE {t} SET " + column + " = " + run.sql.minus(column, 2*lease) + " WHERE " + column + " IS NOT NULL")
		}
		require.Equal(t, len(reply.Rows), run.purge(statuses[before.Purging], lease, 1000))
	default: // the rest happens in workers, and with the broker
	}
	return reply, true
}

// act does what an operator does to the rows of an action. Its filter names others as well.
func (run *modelRun) act(t modelT, a *explore.Action) {
	ids := []int64{int64(a.ID)}
	if a.Also != 0 {
		ids = append(ids, int64(a.Also))
	}
	limit, filter := len(ids), run.these(append(ids, run.besides...)...)
	if run.besides = nil; a.ID%2 == 0 {
		filter.Broker = "" // of all brokers
	}
	var (
		n   int
		err error
	)
	switch a.Kind {
	case explore.Requeue:
		n, err = run.Store.Requeue(run.Context(), filter, limit)
	case explore.Replay:
		n, err = run.Store.Replay(run.Context(), filter, limit)
	default:
		n, err = run.Store.Abandon(run.Context(), filter, "by chance", limit)
	}
	require.NoError(t, err)
	require.Equal(t, limit, n)
}

// step takes an action in the model alone.
func (run *modelRun) step(t modelT, a *explore.Action) (reply explore.Reply, ok bool) {
	next, reply, err := run.protocol.Step(&run.state, a)
	if err != nil {
		return reply, false
	}
	t.Log(explore.Describe(a, &reply))
	if !run.anyOutcome {
		require.Empty(t, run.protocol.Check(&run.state, a, &reply, &next))
	}
	run.state = next
	return reply, true
}

// insertNew writes the rows of an action, and gives them their ids.
func (run *modelRun) insertNew(t modelT, a *explore.Action) {
	a.Rows = slices.Clone(a.Rows)
	rows := make([]outbox.Row, len(a.Rows))
	for i, n := range a.Rows {
		rows[i] = newRow(run.keyName(n.Key))
		rows[i].MessageID = run.newID(rows[i].OrderingKey)
		rows[i].Payload = bytes.Repeat([]byte{'x'}, n.Size)
		rows[i].Priority = map[explore.Class]int{explore.Normal: 0, explore.Backfill: -1, explore.Urgent: 1}[n.Class]
	}
	for i, id := range run.insert(rows...) {
		require.Equal(t, run.shardOfClass(a.Rows[i].Class), run.shardOf(id))
		a.Rows[i].ID = int(id)
		if a.Rows[i].Scheduled {
			run.exec("UPDATE {t} SET available_at = "+run.sql.minus("created_at", -lease)+" WHERE id = ?", id)
		}
	}
}

// keyName is an ordering key by its number in the model.
func (run *modelRun) keyName(key int) string {
	if key == 0 {
		return ""
	}
	return run.keys[key-1]
}

func (run *modelRun) shardOfClass(c explore.Class) int { return run.shard + int(c)*run.Store.Shards() }

// exchange completes and claims, in the model one after the other, in the store in one call.
func (run *modelRun) exchange(t modelT, complete, claim *explore.Action) (reply explore.Reply, ok bool) {
	var (
		completion *driver.Completion
		completed  *driver.Completed
		request    *driver.Claim
	)
	if complete != nil {
		w := run.state.Workers[complete.Worker]
		if complete.Outcomes == nil {
			complete.Outcomes = w.Outcomes()
		}
		if reply, ok = run.step(t, complete); !ok {
			return reply, false
		}
		if complete.Fate == explore.Missed {
			return reply, true
		}
		completion = run.completionOf(&w, complete.Outcomes)
		completed = &driver.Completed{Lost: reply.Lost}
	}
	before := run.state
	if claim != nil {
		if reply, ok = run.step(t, claim); !ok {
			return reply, false
		}
		if claim.Fate == explore.Undone { // only a crash of the server does that
			run.state = before
			return reply, false
		}
		request = run.claimOf(claim.Request)
	}
	result, err := run.Store.Exchange(run.Context(), completion, request)
	require.NoError(t, err)
	require.Equal(t, completed, result.Completed)
	if claim != nil {
		run.compareBatch(t, &before, &reply, &result.Batch)
		run.compareAdvice(t, claim.Request, &reply, &result.Batch)
	}
	return reply, true
}

func (run *modelRun) compareBatch(t modelT, before *explore.State, want *explore.Reply, batch *driver.Batch) {
	ids := make([]int64, len(want.Rows))
	for i, id := range want.Rows {
		ids[i] = int64(id)
	}
	require.Equal(t, ids, taken(*batch), "claimed from\n%s", before)
	require.Equal(t, want.Seen, batch.Seen, "seen in\n%s", before)
	require.Equal(t, want.Cut, batch.Cut, "cut in\n%s", before)
	require.Equal(t, want.Blocked, batch.Blocked, "blocked in\n%s", before)
	for i := range batch.Messages {
		r := run.state.Row(want.Rows[i])
		require.Equal(t, r.Attempts, batch.Messages[i].Attempts, "attempts of row %d", r.ID)
		require.Equal(t, r.Crashes, batch.Messages[i].Crashes, "crashes of row %d", r.ID)
	}
	if want.Token != 0 {
		run.leases[want.Token] = batch.Lease
	}
}

// compareAdvice looks at what a claim says about deferring. Where no row of the window could be
// claimed but for its time or its holder, a store may answer from a glance: it tells of rows that
// wait for a time, and of nothing else.
func (run *modelRun) compareAdvice(t modelT, r explore.Request, want *explore.Reply, batch *driver.Batch) {
	ready, held, seen := len(want.Rows) > 0, 0, 0
	for i := range run.state.Rows {
		row := &run.state.Rows[i]
		if row.Class != r.Shard || row.Status.Terminal() || row.Deferred || row.Scheduled || seen == r.Window {
			continue
		}
		seen++
		ready = ready || !row.Waits
		held += digit(leased(row))
	}
	if ready {
		require.Equal(t, want.Waiting, batch.Waiting, "waiting in\n%s", &run.state)
		return
	}
	require.LessOrEqual(t, batch.Waiting, want.Waiting, "waiting in\n%s", &run.state)
	require.GreaterOrEqual(t, batch.Waiting, want.Waiting-held, "waiting in\n%s", &run.state)
}

// claimOf is a request in the store's terms.
func (run *modelRun) claimOf(r explore.Request) *driver.Claim {
	claim := run.request()
	claim.Bytes = r.Bytes
	claim.Shard, claim.Limit, claim.Window, claim.Unordered, claim.Wake = run.shardOfClass(r.Shard), r.Limit, r.Window, r.Unordered, r.Wake
	return claim
}

func (run *modelRun) completionOf(w *explore.Worker, outcomes []explore.Outcome) *driver.Completion {
	s := &driver.Completion{
		Lease: run.leases[w.Token], BlockAbandoned: run.protocol.BlockAbandoned && !w.Request.Unordered, DeletePublished: run.protocol.DeletePublished,
	}
	for _, o := range outcomes {
		if o.Status == explore.Published {
			s.Published = append(s.Published, driver.Delivered{ID: int64(o.ID)})
			continue
		}
		other := driver.Outcome{ID: int64(o.ID), Status: statuses[o.Status], Spent: o.Spent}
		if o.Wait {
			other.Delay = lease
		}
		s.Other = append(s.Other, other)
	}
	return s
}

// passRow lets the time come that a row waits for, and its block with it.
func (run *modelRun) passRow(id int) {
	for _, column := range []string{"locked_until", "available_at"} {
		run.exec("UPDATE {t} SET "+column+" = "+run.sql.minus(column, 2*lease)+" WHERE "+column+" IS NOT NULL AND id = ?", id)
	}
	run.exec("UPDATE {t}_key_blocks SET wake_at = "+run.sql.minus("wake_at", 2*lease)+" WHERE wake_at IS NOT NULL AND reason <> 'operator' AND block_id = ?", id)
}

// compare looks at the whole table from outside.
func (run *modelRun) compare(t modelT) {
	require.Equal(t, run.wantRows(), run.lines("SELECT id, status, attempts, crashes, coalesce("+run.sql.text("lock_token")+", '')"+
		", CASE WHEN finished_at IS NULL AND ("+run.sql.fromNow("locked_until")+" > 0 OR "+run.sql.fromNow("available_at")+" > 0) THEN 1 ELSE 0 END"+
		", CASE WHEN deferred <> "+run.sql.no+" THEN 1 ELSE 0 END, CASE WHEN available_at IS NULL THEN 0 ELSE 1 END FROM {t} ORDER BY id", 8))
	require.Equal(t, run.wantBlocks(), run.lines("SELECT block_id, shard, coalesce(ordering_key, '')"+
		", CASE WHEN wake_at IS NULL THEN 'back' WHEN reason = 'operator' THEN 'operator' WHEN "+run.sql.fromNow("wake_at")+" > 0 THEN 'rests' ELSE 'due' END"+
		" FROM {t}_key_blocks ORDER BY block_id", 4))
	var shards []int
	for _, class := range run.state.Ready() {
		shards = append(shards, run.shardOfClass(class))
	}
	require.ElementsMatch(t, shards, run.ready(), "ready in\n%s", &run.state)
	run.compareState(t)
}

// compareState looks at the state of one row, another one each time.
func (run *modelRun) compareState(t modelT) {
	if len(run.state.Rows) == 0 {
		return
	}
	run.compared++
	r := &run.state.Rows[run.compared%len(run.state.Rows)]
	records, err := run.Store.Message(run.Context(), run.messageID(int64(r.ID)))
	require.NoError(t, err)
	require.Len(t, records, 1)
	want := run.protocol.StateOf(&run.state.Table, r)
	require.Equal(t, want, records[0].State, "row %d in\n%s", r.ID, &run.state)
}

func (run *modelRun) wantRows() (lines []string) {
	for i := range run.state.Rows {
		r := &run.state.Rows[i]
		token := ""
		if r.Token != 0 {
			token = run.leases[r.Token].Token.String()
		}
		lines = append(lines, fmt.Sprintf("%d %s %d %d %s %d %d %d", r.ID, r.Status, r.Attempts, r.Crashes, token, digit(r.Waits), digit(r.Deferred), digit(r.Scheduled)))
	}
	return lines
}

func (run *modelRun) wantBlocks() (lines []string) {
	for _, g := range run.state.Blocks {
		lines = append(lines, fmt.Sprintf("%d %d %s %s", g.Row, run.shardOfClass(g.Shard), run.keyName(g.Key), g.Wake))
	}
	return lines
}

func digit(flag bool) int {
	if flag {
		return 1
	}
	return 0
}

// lines reads rows of a number of columns, each as one line of text.
func (t *table) lines(text string, columns int) (lines []string) {
	t.Helper()
	rows, err := t.DB.QueryContext(t.Context(), t.render(text))
	require.NoError(t, err, text)
	defer rows.Close()
	values, targets := make([]string, columns), make([]any, columns)
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		require.NoError(t, rows.Scan(targets...))
		lines = append(lines, strings.Join(values, " "))
	}
	require.NoError(t, rows.Err())
	return lines
}
