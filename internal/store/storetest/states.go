package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/explore"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var stateTests = []test{
	{name: "AnyTable", run: testStatesOfAnyTable},
	{name: "EachState", run: testEachState},
	{name: "FarBehind", run: testStatesFarBehind},
	{name: "Stranded", run: testStranded},
}

// A statesRun is the rows of one broker as a person could have written them, in any combination of what
// a table can hold, and the same in the model, whose facts say in which state each row must be.
type statesRun struct {
	*table
	broker   string
	keys     []string // a key's number in the model is 1 + its place in here
	model    explore.Table
	messages map[int]string
	shards   []int
	paused   bool
}

// testStatesOfAnyTable asks everything that tells of states: lists and messages, the lag, the overview,
// blocked keys, the purge, and claims. One table has many brokers, each of which is a case.
func testStatesOfAnyTable(t *table) {
	keys := t.keys(2)
	runs := make([]*statesRun, 4)
	names := make([]string, len(runs))
	for i := range names {
		names[i] = fmt.Sprintf("broker-%d", i)
	}
	t.Store.Know(names...)
	rapid.Check(t, func(rt *rapid.T) {
		for _, name := range []string{"{t}_key_blocks", "{t}_pauses", "{t}"} {
			t.exec("DELETE FROM " + name)
		}
		for i := range runs {
			runs[i] = &statesRun{table: t, broker: names[i], keys: keys, messages: map[int]string{}}
			runs[i].draw(rt)
		}
		backlog, err := t.Store.Backlog(t.Context())
		require.NoError(rt, err)
		overview, err := t.Store.Overview(t.Context(), 100)
		require.NoError(rt, err)
		require.Len(rt, backlog, len(runs))
		require.Len(rt, overview, len(runs))
		for i, run := range runs {
			run.checkMessage(rt)
			run.checkLists(rt, outbox.Statuses()...)
			run.checkLag(rt, backlog[i].Lag)
			run.checkOverview(rt, &overview[i])
			run.checkBlocked(rt)
			run.checkPurge(rt)
			run.checkLists(rt, outbox.StatusPending, outbox.StatusFailed)
			run.checkClaims(rt)
		}
	})
}

// draw writes rows and blocks.
func (run *statesRun) draw(rt *rapid.T) {
	n, keyed := rapid.IntRange(1, 4).Draw(rt, "rows"), rapid.IntRange(1, len(run.keys)).Draw(rt, "keys")
	follow := rapid.IntRange(0, 2).Draw(rt, "what follows a row that is done") == 0
	rows, drawn := make([]outbox.Row, n), make([]explore.Row, n)
	for i := range rows {
		r := explore.Row{
			Key:    rapid.IntRange(1, keyed).Draw(rt, "key"),
			Class:  rapid.SampledFrom([]explore.Class{explore.Normal, explore.Normal, explore.Normal, explore.Backfill}).Draw(rt, "class"),
			Status: rapid.SampledFrom([]explore.Status{explore.Pending, explore.Pending, explore.Pending, explore.Processing, explore.Failed, explore.Published, explore.Abandoned}).Draw(rt, "status"),
		}
		switch {
		case rapid.IntRange(0, 4).Draw(rt, "no key") == 0:
			r.Key = 0
		case i == 0 && follow:
			r.Status, r.Class = explore.Published, explore.Normal
		}
		rows[i] = newRow("")
		rows[i].TargetBroker = run.broker
		if r.Key > 0 {
			rows[i].OrderingKey = run.keys[r.Key-1]
		}
		rows[i].Priority = map[explore.Class]int{explore.Normal: 0, explore.Backfill: -1}[r.Class]
		drawn[i] = r
	}
	for i, id := range run.insert(rows...) {
		r, shard := &drawn[i], run.shardOf(id)
		r.ID = int(id)
		run.messages[r.ID] = rows[i].MessageID.String()
		run.drawRow(rt, r)
		if rapid.IntRange(0, 9).Draw(rt, "gone") > 0 {
			run.model.Rows = append(run.model.Rows, *r)
		} else {
			run.exec("DELETE FROM {t} WHERE id = ?", r.ID)
		}
		if follow && i == 0 || rapid.Bool().Draw(rt, "block") {
			run.drawBlock(rt, r, shard)
		}
		if !slices.Contains(run.shards, shard) {
			run.shards = append(run.shards, shard)
		}
	}
	if run.paused = rapid.IntRange(0, 4).Draw(rt, "paused") == 0; run.paused {
		_, err := run.Store.Pause(run.Context(), admin.Pause{Broker: run.broker})
		require.NoError(rt, err)
	}
}

// drawRow writes what a row holds beside its key.
func (run *statesRun) drawRow(rt *rapid.T, r *explore.Row) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	created := run.sql.time(now.Add(-2 * time.Hour))
	switch r.Status {
	case explore.Published:
		run.exec("UPDATE {t} SET status = 'published', created_at = ?, finished_at = ?, published_at = ? WHERE id = ?", created, created, created, r.ID)
		return
	case explore.Abandoned:
		run.exec("UPDATE {t} SET status = 'abandoned', created_at = ?, finished_at = ? WHERE id = ?", created, created, r.ID)
		return
	default:
	}
	until := now.Add(-time.Hour)
	if r.Waits = rapid.IntRange(0, 2).Draw(rt, "time") == 0; r.Waits {
		until = now.Add(lease)
	}
	column, deferred, lastError := "locked_until", run.sql.no, "NULL"
	switch r.Status {
	case explore.Processing: // no statement defers what is claimed
		r.Token = r.ID
		run.exec("UPDATE {t} SET lock_token = "+run.sql.id("?")+" WHERE id = ?", uuid.New().String(), r.ID)
	default:
		if r.Scheduled = rapid.Bool().Draw(rt, "scheduled"); r.Scheduled {
			column = "available_at"
		}
		if r.Deferred = rapid.Bool().Draw(rt, "deferred"); r.Deferred {
			deferred = run.sql.yes
		}
	}
	if r.Status == explore.Failed {
		lastError = `'{"class":"x"}'`
	}
	run.exec("UPDATE {t} SET status = ?, created_at = ?, "+column+" = ?, deferred = "+deferred+", last_error = "+lastError+" WHERE id = ?", r.Status.String(), created, run.sql.time(until), r.ID)
}

// drawBlock may make a row a block, of its key or of itself.
func (run *statesRun) drawBlock(rt *rapid.T, r *explore.Row, shard int) {
	known := func(g explore.Block) bool { return r.Key > 0 && g.Key == r.Key && g.Shard == r.Class }
	if slices.ContainsFunc(run.model.Blocks, known) || run.passedOver(r) {
		return
	}
	g := explore.Block{Row: r.ID, Key: r.Key, Shard: r.Class, Wake: rapid.SampledFrom([]explore.Wake{explore.Rests, explore.Due, explore.Back, explore.Operator}).Draw(rt, "wake")}
	if r.Key == 0 && (g.Wake == explore.Back || g.Wake == explore.Operator) {
		return // what waits alone waits for a time
	}
	run.model.Blocks = append(run.model.Blocks, g)
	now := time.Now().UTC().Truncate(time.Millisecond)
	reason, wakeAt, key := "backoff", any(nil), any(nil)
	switch g.Wake {
	case explore.Rests:
		wakeAt = run.sql.time(now.Add(lease))
	case explore.Due:
		wakeAt = run.sql.time(now.Add(-30 * time.Minute))
	case explore.Operator:
		reason, wakeAt = "operator", run.sql.never
	case explore.Back:
	}
	if r.Key > 0 {
		key = run.keys[r.Key-1]
	}
	run.exec("INSERT INTO {t}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason, since) VALUES (?, ?, ?, ?, "+run.sql.id("?")+", ?, ?, ?)",
		run.broker, shard, key, r.ID, run.messages[r.ID], wakeAt, reason, run.sql.time(now.Add(-time.Hour)))
}

// passedOver reports whether an open row of the key stands between a row and an earlier one that is
// deferred. No statement makes a block behind a row that it has deferred; where a person did, a claim can
// take the row between before the lift that brings back the earlier one, which lists say goes first.
func (run *statesRun) passedOver(r *explore.Row) bool {
	deferred := false
	for i := range run.model.Rows {
		before := &run.model.Rows[i]
		if before.ID >= r.ID || before.Key != r.Key || before.Class != r.Class || before.Key == 0 || before.Scheduled || statuses[before.Status].Terminal() {
			continue
		}
		if deferred && !before.Deferred {
			return true
		}
		deferred = deferred || before.Deferred
	}
	return false
}

// facts of a row, as it was written.
func (run *statesRun) facts(r *explore.Row) core.Facts {
	f := explore.Default().Facts(&run.model, r)
	f.Paused = run.paused
	return f
}

func (run *statesRun) want(r *explore.Row) outbox.State {
	f := run.facts(r)
	return core.State(&f)
}

// due lists the rows that would be due but for a pause.
func (run *statesRun) due() (ids []int64) {
	for i := range run.model.Rows {
		f := run.facts(&run.model.Rows[i])
		f.Paused = false
		if core.State(&f) == outbox.StateDue {
			ids = append(ids, int64(run.model.Rows[i].ID))
		}
	}
	return ids
}

// text is what was written.
func (run *statesRun) text() string { return (&explore.State{Table: run.model}).String() }

func (run *statesRun) checkMessage(rt *rapid.T) {
	if len(run.model.Rows) == 0 {
		return
	}
	r := &run.model.Rows[0]
	records, err := run.Store.Message(run.Context(), run.messages[r.ID])
	require.NoError(rt, err)
	require.Len(rt, records, 1)
	require.Equal(rt, run.want(r), records[0].State, "row %d (%+v) of\n%s", r.ID, run.facts(r), run.text())
}

func (run *statesRun) checkLists(rt *rapid.T, listed ...outbox.Status) {
	for _, status := range listed {
		list, err := run.Store.List(run.Context(), admin.ListRequest{Broker: run.broker, Status: status, Limit: 100, Scan: 100})
		require.NoError(rt, err)
		rows := 0
		for i := range run.model.Rows {
			if statuses[run.model.Rows[i].Status] == status {
				rows++
			}
		}
		require.Len(rt, list.Records, rows, status)
		for i := range list.Records {
			r := run.model.Row(int(list.Records[i].ID))
			require.NotNil(rt, r)
			require.Equal(rt, run.want(r), list.Records[i].State, "row %d (%+v) of\n%s", r.ID, run.facts(r), run.text())
		}
	}
}

// checkLag: the broker is behind while a row is due. What keeps a deferred row back whose block is due,
// but for blocks, is not looked at: an earlier row of its key that nothing has deferred yet, or a later
// one that is claimed. A scheduled row whose time has come counts whatever else keeps it back.
func (run *statesRun) checkLag(rt *rapid.T, lag time.Duration) {
	due, perhaps := len(run.due()) > 0 && !run.paused, false
	for i := range run.model.Rows {
		f := run.facts(&run.model.Rows[i])
		if f.Deferred {
			f.Earlier, f.Claimed = false, false
		}
		perhaps = perhaps || core.State(&f) == outbox.StateDue || arrives(&run.model.Rows[i])
	}
	if due || !perhaps {
		require.Equal(rt, due, lag > 0, "lag %s of\n%s", lag, run.text())
	}
	if due {
		require.GreaterOrEqual(rt, lag, 29*time.Minute)
	}
}

func (run *statesRun) checkOverview(rt *rapid.T, got *admin.BrokerOverview) {
	want, deferred := map[outbox.Status]admin.Count{}, int64(0)
	for _, status := range outbox.Statuses() {
		want[status] = admin.Count{}
	}
	for i := range run.model.Rows {
		r := &run.model.Rows[i]
		status := statuses[r.Status]
		want[status] = admin.Count{N: want[status].N + 1}
		deferred += int64(digit(r.Deferred && !r.Scheduled))
	}
	require.Equal(rt, run.broker, got.Broker)
	require.Equal(rt, want, got.Counts)
	require.Equal(rt, admin.Count{N: deferred}, got.Deferred)
}

// checkBlocked: a row is blocked where its key is listed as one that waits for an operator.
func (run *statesRun) checkBlocked(rt *rapid.T) {
	blocks, err := run.Store.KeyBlocks(run.Context(), run.broker, 100, 100)
	require.NoError(rt, err)
	for i := range run.model.Rows {
		r := &run.model.Rows[i]
		if run.want(r) != outbox.StateBlocked {
			continue
		}
		listed := func(b admin.KeyBlock) bool {
			return b.Key == run.keys[r.Key-1] && int(b.Class) == int(r.Class) && b.Reason == "operator" && b.Until.IsZero()
		}
		require.True(rt, slices.ContainsFunc(blocks.Keys, listed), "row %d of\n%s", r.ID, run.text())
	}
}

// checkPurge: finished rows go, but for those for which a key waits, and no other row notices.
func (run *statesRun) checkPurge(rt *rapid.T) {
	for _, status := range []explore.Status{explore.Published, explore.Abandoned} {
		kept := run.model.Rows[:0:0]
		for i := range run.model.Rows {
			r := &run.model.Rows[i]
			blocks := func(g explore.Block) bool { return g.Row == r.ID && g.Wake == explore.Operator }
			if r.Status != status || status == explore.Abandoned && slices.ContainsFunc(run.model.Blocks, blocks) {
				kept = append(kept, *r)
			}
		}
		n, err := run.Store.Purge(run.Context(), admin.PurgeRequest{Status: statuses[status], Retention: time.Minute, Limit: 100, Broker: run.broker})
		require.NoError(rt, err)
		require.Equal(rt, len(run.model.Rows)-len(kept), n, "%s of\n%s", status, run.text())
		run.model.Rows = kept
	}
}

// arrives reports whether a row is scheduled and its time has come.
func arrives(r *explore.Row) bool { return r.Scheduled && !r.Waits }

// passes reports whether a row's key has a scheduled row whose time has come: claims may take others of
// the key before the lift that admits it.
func (run *statesRun) passes(r *explore.Row) bool {
	return slices.ContainsFunc(run.model.Rows, func(other explore.Row) bool {
		return arrives(&other) && other.Key == r.Key && other.Class == r.Class && r.Key != 0
	})
}

// checkClaims: claims take the rows that are due, each the first of its key that is taken, and rows
// behind these; and a shard with one of them is ready.
func (run *statesRun) checkClaims(rt *rapid.T) {
	ready, err := run.Store.Ready(run.Context(), run.broker, 0)
	require.NoError(rt, err)
	require.Equal(rt, run.paused, ready.Paused)
	due := slices.DeleteFunc(run.due(), func(id int64) bool { return run.passes(run.model.Row(int(id))) })
	first, known := []int64{}, map[[2]int]bool{}
	for _, shard := range run.shards {
		for empty := 0; empty < 2; { // the first one may only lift
			batch := run.claim(wake, func(c *driver.Claim) { c.Broker, c.Shard = run.broker, shard })
			if len(batch.Messages) == 0 {
				empty++
			}
			for i := range batch.Messages {
				r := run.model.Row(int(batch.Messages[i].ID))
				require.NotNil(rt, r)
				require.False(rt, r.Scheduled && r.Waits, "row %d of\n%s", r.ID, run.text())
				if at := [2]int{r.Key, int(r.Class)}; !run.passes(r) && (r.Key == 0 || !known[at]) {
					first, known[at] = append(first, int64(r.ID)), true
				}
				require.True(rt, run.paused || slices.Contains(ready.Shards, shard), "shard %d of\n%s", shard, run.text())
			}
		}
	}
	require.ElementsMatch(rt, due, first, "claimed first in\n%s", run.text())
}

// What a person sees of each state, and of a broker that the configuration does not have.
func testEachState(t *table) {
	k, stateOf := t.keys(4), t.stateOf
	ids := t.add(k[0], k[0], k[1], k[1])
	assert.Equal(t, outbox.StateDue, stateOf(ids[0]))
	assert.Equal(t, outbox.StateBehind, stateOf(ids[1]))
	t.failHead(ids[0])
	assert.Equal(t, outbox.StateBackoff, stateOf(ids[0]))
	assert.Equal(t, outbox.StateBehind, stateOf(ids[1]))
	require.Equal(t, 2, t.deferRows())
	assert.Equal(t, outbox.StateBackoff, stateOf(ids[0]))
	assert.Equal(t, outbox.StateBehind, stateOf(ids[1]))
	batch := t.claim(limit(1))
	require.Equal(t, ids[2:3], taken(batch))
	assert.Equal(t, outbox.StateClaimed, stateOf(ids[2]))
	require.Zero(t, t.complete(&driver.Completion{Lease: batch.Lease, BlockAbandoned: true, Other: []driver.Outcome{{ID: ids[2], Status: outbox.StatusAbandoned, Spent: true}}}).Lost)
	assert.Empty(t, stateOf(ids[2]), "it is finished")
	assert.Equal(t, outbox.StateBlocked, stateOf(ids[3]))
	later := newRow(k[2])
	later.AvailableAt = time.Now().Add(lease)
	scheduled := t.insert(later)[0]
	assert.Equal(t, outbox.StateScheduled, stateOf(scheduled))
	_, err := t.Store.Pause(t.Context(), admin.Pause{Broker: broker})
	require.NoError(t, err)
	open := t.add(k[3])[0]
	assert.Equal(t, outbox.StatePaused, stateOf(open))
	assert.Equal(t, outbox.StateScheduled, stateOf(scheduled))
	t.exec("DELETE FROM {t}_key_blocks WHERE ordering_key = ?", k[0])
	assert.Equal(t, outbox.StateStranded, stateOf(ids[0]))
	assert.Equal(t, outbox.StateStranded, stateOf(ids[1]))
	assert.Equal(t, 1, t.requeue(t.these(ids[0])), "what has failed can be requeued")
	assert.Equal(t, 1, t.requeue(t.these(ids[1])), "and so can what is pending")
	assert.Zero(t, t.requeue(t.these(ids[1])), "once")
	_, err = t.Store.Resume(t.Context(), broker)
	require.NoError(t, err)
	assert.Equal(t, []outbox.State{outbox.StateDue, outbox.StateBehind}, []outbox.State{stateOf(ids[0]), stateOf(ids[1])})
	t.Store.Know("another")
	assert.Equal(t, outbox.StateUnconfigured, stateOf(open))
}

// stateOf is the state of a row as a person sees it.
func (t *table) stateOf(id int64) outbox.State {
	t.Helper()
	records, err := t.Store.Message(t.Context(), t.messageID(id))
	require.NoError(t, err)
	require.Len(t, records, 1)
	return records[0].State
}

// Earlier rows of a key are looked for at the head of the shard. A row further down than that may count
// as due.
func testStatesFarBehind(t *table) {
	k := t.keys(2)
	keys := slices.Repeat(k[:1], 1000)
	keys[998] = k[1]
	ids := t.add(append(keys, k[1], k[0])...)
	list, err := t.Store.List(t.Context(), admin.ListRequest{Broker: broker, Status: outbox.StatusPending, Limit: 2000, Scan: 2000})
	require.NoError(t, err)
	states := map[int64]outbox.State{}
	for i := range list.Records {
		states[list.Records[i].ID] = list.Records[i].State
	}
	require.Len(t, states, len(ids))
	assert.Equal(t, outbox.StateDue, states[ids[0]])
	assert.Equal(t, outbox.StateDue, states[ids[998]])
	for _, at := range []int{1, 999, 1000, 1001} {
		assert.Equal(t, outbox.StateBehind, states[ids[at]], at)
	}
}

// Rows that no rule can ever make due are found page by page, among others that merely wait, and come
// back when they are requeued.
func testStranded(t *table) {
	k := t.keys(4)
	waiting := t.add(k[0], k[0])
	t.failHead(waiting[0])
	later := newRow("")
	later.AvailableAt = time.Now().Add(lease)
	t.insert(later)
	require.GreaterOrEqual(t, t.deferRows(), 2) // the other one may be in another shard
	blocked := t.add(k[1], k[1])
	t.abandonAndBlock(blocked[0])
	require.Equal(t, 1, t.deferRows())
	find := func(limit int) (found []int64, pages int) {
		t.Helper()
		for after, more := (admin.Position{}), true; more; pages++ {
			list, err := t.Store.Stranded(t.Context(), broker, after, limit)
			require.NoError(t, err)
			for i := range list.Records {
				r := &list.Records[i]
				assert.Equal(t, outbox.StateStranded, r.State)
				assert.Equal(t, t.messageID(r.ID), r.MessageID)
				assert.Equal(t, broker, r.Broker)
				assert.NotZero(t, r.CreatedAt)
				found = append(found, r.ID)
			}
			more, after = list.Next != admin.Position{}, list.Next
		}
		return found, pages
	}
	found, _ := find(100)
	assert.Empty(t, found, "what waits for a time, for a row or for an operator is not lost")

	lost := t.add(k[2], k[3], "", k[3])
	t.exec("UPDATE {t} SET deferred = "+t.sql.yes+" WHERE id = ?", lost[0])
	t.exec("UPDATE {t} SET deferred = "+t.sql.yes+", status = 'failed', last_error = '{}' WHERE id = ?", lost[2])
	if d := t.Store.Dialect(); d == outbox.Postgres || d == outbox.SQLite { // which take no such lease
		t.exec("UPDATE {t} SET deferred = "+t.sql.yes+" WHERE id = ?", lost[1])
	} else {
		t.exec("UPDATE {t} SET status = 'processing', lock_token = "+t.sql.id("?")+", locked_until = ? WHERE id = ?", uuid.NewString(), t.sql.never, lost[1])
	}
	found, _ = find(100)
	assert.ElementsMatch(t, lost[:3], found)
	found, pages := find(2)
	assert.ElementsMatch(t, lost[:3], found, "on whatever page")
	assert.GreaterOrEqual(t, pages, 3, "five deferred rows, at least")
	none, err := t.Store.Stranded(t.Context(), "another", admin.Position{}, 1)
	require.NoError(t, err)
	assert.Equal(t, admin.List{}, none)

	everything := admin.Filter{Broker: broker, Statuses: admin.RequeueStatuses()}
	everything.Statuses = everything.Statuses[:3] // but for what is abandoned
	assert.Equal(t, 1, t.requeue(t.these(lost[0])), "by its name")
	assert.Equal(t, 1, t.requeue(t.these(lost[1])))
	assert.Equal(t, 1+2, t.requeue(everything), "with what waits for a time")
	found, _ = find(100)
	assert.Empty(t, found)
	for _, id := range lost[:3] {
		assert.Equal(t, outbox.StateDue, t.stateOf(id))
	}
	for _, wrong := range []struct {
		broker string
		limit  int
	}{{broker, 0}, {broker, 1 << 40}} {
		_, err := t.Store.Stranded(t.Context(), wrong.broker, admin.Position{}, wrong.limit)
		require.ErrorContains(t, err, "stranded rows: ")
	}
}
