package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// testOperateModel runs random schedules of writers, claims, deferring and operators. It does not
// foretell what a claim takes, which depends on how far blocks have been moved on, but what it must
// never take, and that in the end all comes through.
func testOperateModel(t *table) {
	keys := append(t.keys(3), "")
	rapid.Check(t, func(rt *rapid.T) {
		t.exec("DELETE FROM {t}")
		t.exec("DELETE FROM {t}_key_blocks")
		run := &operateRun{table: t, keys: keys, shut: map[keyInShard]int64{}}
		rt.Repeat(map[string]func(*rapid.T){
			"write": run.write, "claim": run.claimSome, "claim again": run.claimSome, "complete": run.completeSome, "complete again": run.completeSome,
			"defer": run.deferSome, "time passes": run.timePasses, "requeue": run.requeueSome, "replay": run.replaySome,
			"abandon": run.abandonSome, "release": run.releaseSome,
		})
		run.finish(rt)
	})
}

// An operated row is what the schedule has made of a row.
type operated struct {
	id      int64
	key     string
	message string
	shard   int
	status  outbox.Status
	waits   bool // for a time
	back    bool // it came back from where it was finished
}

func (r *operated) open() bool { return !r.status.Terminal() }

// A keyInShard is what keeps an order: a key, in one priority class.
type keyInShard struct {
	key   string
	shard int
}

func (r *operated) place() keyInShard { return keyInShard{r.key, r.shard} }

type operateRun struct {
	*table
	keys    []string
	rows    []*operated          // in the order of ids
	shut    map[keyInShard]int64 // by an abandoned row
	batches []driver.Batch
}

func (run *operateRun) row(id int64) *operated {
	i := slices.IndexFunc(run.rows, func(r *operated) bool { return r.id == id })
	return run.rows[i]
}

func (run *operateRun) write(rt *rapid.T) {
	low := -rapid.IntRange(0, 1).Draw(rt, "low")
	for _, key := range rapid.SliceOfN(rapid.SampledFrom(run.keys), 1, 4).Draw(rt, "keys") {
		var id int64
		if key == "" {
			id = run.addLoose(1)[0]
		} else {
			id = run.addWith(low, key)[0]
		}
		run.rows = append(run.rows, &operated{id: id, key: key, message: run.messageID(id), shard: run.shardOf(id), status: outbox.StatusPending})
	}
}

func (run *operateRun) claimSome(rt *rapid.T) {
	claim := run.request(wake)
	claim.Shard += run.Store.Shards() * rapid.IntRange(0, 1).Draw(rt, "class")
	claim.Limit = rapid.IntRange(1, 6).Draw(rt, "limit")
	claim.Window = claim.Limit + rapid.IntRange(0, 20).Draw(rt, "further")
	result, err := run.Store.Exchange(run.Context(), nil, claim)
	require.NoError(rt, err)
	ids := taken(result.Batch)
	for _, id := range ids {
		row := run.row(id)
		require.True(rt, row.open() && !row.waits && row.status != outbox.StatusProcessing, "row %d is %+v", id, row)
		if row.key == "" {
			continue
		}
		if block, ok := run.shut[row.place()]; ok {
			require.LessOrEqual(rt, id, block, "key %q waits for an operator", row.key)
		}
		for _, other := range run.rows {
			if other.place() != row.place() || !other.open() || slices.Contains(ids, other.id) {
				continue
			}
			require.Greater(rt, other.id, id, "an earlier row of key %q is open", row.key)
			if !row.back { // else the later one was claimed when it came back
				require.NotEqual(rt, outbox.StatusProcessing, other.status, "key %q is claimed", row.key)
			}
		}
	}
	for _, id := range ids {
		run.row(id).status = outbox.StatusProcessing
	}
	if len(ids) > 0 {
		run.batches = append(run.batches, result.Batch)
	}
}

func (run *operateRun) completeSome(rt *rapid.T) {
	if len(run.batches) == 0 {
		rt.Skip("no batch")
	}
	i := rapid.IntRange(0, len(run.batches)-1).Draw(rt, "batch")
	batch := run.batches[i]
	run.batches = slices.Delete(run.batches, i, i+1)
	s := &driver.Completion{Lease: batch.Lease, BlockAbandoned: rapid.Bool().Draw(rt, "defer")}
	stopped := map[string]bool{}
	for n := range batch.Messages {
		row := run.row(batch.Messages[n].ID)
		what := rapid.SampledFrom([]string{"published", "published", "retry", "later", "abandoned", "released"}).Draw(rt, "outcome")
		if row.key != "" && stopped[row.key] {
			what = "released"
		}
		o := driver.Outcome{ID: row.id, Spent: true, Status: outbox.StatusFailed}
		switch what {
		case "published":
			row.status = outbox.StatusPublished
			s.Published = append(s.Published, driver.Delivered{ID: row.id})
			continue
		case "later":
			o.Delay, row.waits = time.Minute, true
		case "abandoned":
			o.Status = outbox.StatusAbandoned
			if s.BlockAbandoned && row.key != "" {
				run.shut[row.place()] = row.id
			}
		case "released":
			o.Status, o.Spent = outbox.StatusPending, false
		}
		stopped[row.key] = true
		row.status = o.Status
		s.Other = append(s.Other, o)
	}
	require.Zero(rt, run.complete(s).Lost)
}

func (run *operateRun) deferSome(rt *rapid.T) {
	claim := run.request()
	claim.Shard += run.Store.Shards() * rapid.IntRange(0, 1).Draw(rt, "class")
	claim.Window = rapid.IntRange(1, 20).Draw(rt, "window")
	_, err := run.Store.Defer(run.Context(), claim)
	require.NoError(rt, err)
}

func (run *operateRun) timePasses(*rapid.T) {
	run.pass()
	for _, row := range run.rows {
		row.waits = false
	}
}

// choose draws some rows, as a filter, and which of them an action must change.
func (run *operateRun) choose(rt *rapid.T, fit func(*operated) bool) (filter admin.Filter, limit int, want []*operated) {
	if len(run.rows) == 0 {
		rt.Skip("no row")
	}
	filter.Broker = rapid.SampledFrom([]string{broker, ""}).Draw(rt, "broker")
	limit = rapid.IntRange(1, 5).Draw(rt, "limit")
	for _, row := range run.rows {
		if rapid.IntRange(0, 2).Draw(rt, "chosen") == 0 {
			continue
		}
		filter.MessageIDs = append(filter.MessageIDs, row.message)
		if fit(row) && len(want) < limit {
			want = append(want, row)
		}
	}
	if len(filter.MessageIDs) == 0 {
		rt.Skip("no row")
	}
	return filter, limit, want
}

func (run *operateRun) requeueSome(rt *rapid.T) {
	filter, limit, want := run.choose(rt, func(r *operated) bool {
		return r.status == outbox.StatusFailed || r.status == outbox.StatusAbandoned || r.status == outbox.StatusPending && r.waits
	})
	n, err := run.Store.Requeue(run.Context(), filter, limit)
	require.NoError(rt, err)
	require.Equal(rt, len(want), n)
	for _, row := range want {
		row.back = row.back || row.status == outbox.StatusAbandoned
		row.status, row.waits = outbox.StatusPending, false
		if run.shut[row.place()] == row.id {
			delete(run.shut, row.place())
		}
	}
}

func (run *operateRun) replaySome(rt *rapid.T) {
	filter, limit, want := run.choose(rt, func(r *operated) bool { return r.status == outbox.StatusPublished })
	n, err := run.Store.Replay(run.Context(), filter, limit)
	require.NoError(rt, err)
	require.Equal(rt, len(want), n)
	for _, row := range want {
		row.status, row.back = outbox.StatusPending, true
	}
}

func (run *operateRun) abandonSome(rt *rapid.T) {
	filter, limit, want := run.choose(rt, func(r *operated) bool { return r.status == outbox.StatusPending || r.status == outbox.StatusFailed })
	n, err := run.Store.Abandon(run.Context(), filter, "by chance", limit)
	require.NoError(rt, err)
	require.Equal(rt, len(want), n)
	for _, row := range want {
		row.status, row.waits = outbox.StatusAbandoned, false
	}
}

func (run *operateRun) releaseSome(rt *rapid.T) {
	key := rapid.SampledFrom(run.keys[:3]).Draw(rt, "key")
	was := len(run.shut)
	maps.DeleteFunc(run.shut, func(at keyInShard, _ int64) bool { return at.key == key })
	require.Equal(rt, len(run.shut) < was, run.release(key), "whether key %q was blocked", key)
}

// finish lets everything through and checks that nothing is left over.
func (run *operateRun) finish(rt *rapid.T) {
	for _, batch := range run.batches {
		run.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending}))
	}
	run.pass()
	require.Len(rt, run.blockedKeys(), len(run.shut))
	for len(run.shut) > 0 {
		for at := range run.shut {
			require.True(rt, run.release(at.key))
			maps.DeleteFunc(run.shut, func(other keyInShard, _ int64) bool { return other.key == at.key })
		}
	}
	run.requeue(admin.Filter{Broker: broker})
	last := map[keyInShard]int64{}
	for _, id := range run.drain() {
		at := run.row(id).place()
		require.True(rt, at.key == "" || id > last[at], "row %d of key %q after row %d", id, at.key, last[at])
		last[at] = id
	}
	require.Equal(rt, len(run.rows), run.count(outbox.StatusPublished), "all comes through")
	require.Zero(rt, run.blocks())
	require.Zero(rt, run.deferred())
}
