package storetest

import (
	"flag"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
)

var modelTests = []test{{name: "AnySchedule", run: testModel}}

// Each action costs a database some statements, and SQLite under the race detector some more: so a run makes fewer
// schedules than rapid's default of 100, unless -rapid.checks says otherwise. A failure prints the seed that replays it.
func init() { //nolint:gochecknoinits // a default must be in place before the flags are read
	_ = flag.Set("rapid.checks", "30")
	_ = flag.Set("rapid.nofailfile", "true")
}

// A modelRow is a row as the contract describes it, without a database.
type modelRow struct {
	outbox.Message // id, key, attempts, crashes
	status         outbox.Status
	token          uuid.UUID
	locked         bool // the lease or the backoff is not over
	alone          bool
}

func (r *modelRow) leased() bool { return r.status == outbox.StatusProcessing }

func (r *modelRow) suspicion() int {
	if r.leased() {
		return r.Crashes + 1
	}
	return r.Crashes
}

// A model is the open part of a lane, in the order of ids.
type model struct{ rows []*modelRow }

// choose says which rows a claim takes.
func (m *model) choose(c *outbox.Claim) (chosen []*modelRow) {
	var free []*modelRow
	if c.Unordered {
		for _, r := range m.rows {
			if !r.locked && len(free) < c.Limit {
				free = append(free, r)
			}
		}
	} else {
		free = m.freePrefixes(c.Window)
	}
	mixed := map[string]bool{} // keys whose next row differs in suspicion from the first that is taken
	for _, r := range free {
		same := r.suspicion() == free[0].suspicion()
		if same && !mixed[r.OrderingKey] {
			chosen = append(chosen, r)
		}
		if !same && r.OrderingKey != "" && !c.Unordered {
			mixed[r.OrderingKey] = true
		}
	}
	if len(free) > 0 {
		chosen = chosen[:min(len(chosen), max(1, c.Limit>>free[0].suspicion()))]
	}
	return chosen
}

// freePrefixes are the rows of a window before which nothing of their key must wait, without keys in other hands.
func (m *model) freePrefixes(window int) (free []*modelRow) {
	held, waits := map[string]bool{}, map[string]bool{}
	win := m.rows[:min(window, len(m.rows))]
	for _, r := range win {
		held[r.OrderingKey] = held[r.OrderingKey] || r.leased() && r.locked
	}
	for _, r := range win {
		waits[r.OrderingKey] = waits[r.OrderingKey] || r.locked
		if r.OrderingKey == "" && !r.locked || r.OrderingKey != "" && !waits[r.OrderingKey] && !held[r.OrderingKey] {
			free = append(free, r)
		}
	}
	return free
}

// settle applies an outcome and reports whether the row still belonged to the claim.
func (m *model) settle(l outbox.Lease, o outbox.Outcome) bool {
	i := slices.IndexFunc(m.rows, func(r *modelRow) bool { return r.ID == o.ID })
	if i < 0 || m.rows[i].token != l.Token || !m.rows[i].leased() {
		return false
	}
	r := m.rows[i]
	r.status, r.token, r.alone, r.locked = o.Status, uuid.Nil, false, o.Delay > 0
	if o.Spent {
		r.Attempts++
		r.Crashes = 0
	}
	if o.Status.Terminal() {
		m.rows = slices.Delete(m.rows, i, i+1)
	}
	return true
}

// testModel runs random schedules of writers, claimers, crashes and operators, and compares each answer with the model's.
func testModel(t *table) {
	keys := append(t.keys(4), "")
	rapid.Check(t, func(rt *rapid.T) {
		t.exec("DELETE FROM {t}")
		run := &modelRun{table: t, rt: rt, keys: keys}
		rt.Repeat(map[string]func(*rapid.T){
			"write": run.write, "claim": run.claimSome, "claim again": run.claimSome, "settle": run.settleSome,
			"time passes": run.timePasses, "owner dies": run.ownerDies, "renew": run.renewOne,
		})
	})
}

type modelRun struct {
	*table
	rt      *rapid.T
	keys    []string
	model   model
	batches []outbox.Batch // settled or not, in order
}

func (run *modelRun) write(rt *rapid.T) {
	keys := rapid.SliceOfN(rapid.SampledFrom(run.keys), 1, 6).Draw(rt, "keys")
	for i, id := range run.add(keys...) {
		if keys[i] == "" && run.Store.Lanes() > 1 && run.laneOf(id) != run.lane {
			run.exec("DELETE FROM {t} WHERE id = ?", id)
			continue
		}
		run.model.rows = append(run.model.rows, &modelRow{Message: outbox.Message{ID: id, OrderingKey: keys[i]}, status: outbox.StatusPending})
	}
}

func (run *modelRun) claimSome(rt *rapid.T) {
	claim := run.request()
	claim.Limit = rapid.IntRange(1, 9).Draw(rt, "limit")
	claim.Window = claim.Limit + rapid.IntRange(0, 20).Draw(rt, "further")
	claim.Unordered = rapid.IntRange(0, 4).Draw(rt, "unordered") == 0
	chosen := run.model.choose(claim)
	result, err := run.Store.Exchange(run.Context(), nil, claim)
	require.NoError(rt, err)
	batch := result.Batch

	want := make([]int64, len(chosen))
	for i, r := range chosen {
		want[i] = r.ID
		if r.leased() {
			r.Crashes++
			if r.alone {
				r.Attempts++
			}
		}
		r.status, r.token, r.locked, r.alone = outbox.StatusProcessing, batch.Lease.Token, true, len(chosen) == 1
	}
	require.Equal(rt, want, taken(batch))
	for i, r := range chosen {
		require.Equal(rt, r.Attempts, batch.Messages[i].Attempts, "attempts of row %d", r.ID)
		require.Equal(rt, r.Crashes, batch.Messages[i].Crashes, "crashes of row %d", r.ID)
	}
	if !claim.Unordered {
		require.Equal(rt, min(claim.Window, len(run.model.rows)), batch.Seen)
	}
	if len(chosen) > 0 {
		run.batches = append(run.batches, batch)
	}
}

func (run *modelRun) pick(rt *rapid.T) outbox.Batch {
	if len(run.batches) == 0 {
		rt.Skip("no batch")
	}
	return rapid.SampledFrom(run.batches).Draw(rt, "batch")
}

func (run *modelRun) settleSome(rt *rapid.T) {
	batch := run.pick(rt)
	s := &outbox.Settlement{Lease: batch.Lease}
	lost := 0
	for i := range batch.Messages {
		o := outbox.Outcome{ID: batch.Messages[i].ID, Spent: true, Status: outbox.StatusPublished}
		switch rapid.SampledFrom([]string{"published", "retry", "later", "abandoned", "released", "forgotten"}).Draw(rt, "outcome") {
		case "published":
			s.Published = append(s.Published, outbox.Delivered{ID: o.ID})
		case "retry":
			o.Status = outbox.StatusFailed
		case "later":
			o.Status, o.Delay = outbox.StatusFailed, time.Minute
		case "abandoned":
			o.Status = outbox.StatusAbandoned
		case "released":
			o.Status, o.Spent = outbox.StatusPending, false
		case "forgotten":
			continue
		}
		if o.Status != outbox.StatusPublished {
			s.Other = append(s.Other, o)
		}
		if !run.model.settle(batch.Lease, o) {
			lost++
		}
	}
	result, err := run.Store.Exchange(run.Context(), s, nil)
	require.NoError(rt, err)
	require.Equal(rt, &outbox.Settled{Lost: lost}, result.Settled)
}

func (run *modelRun) timePasses(*rapid.T) {
	run.exec("UPDATE {t} SET locked_until = " + run.sql.minus("locked_until", 2*lease) + " WHERE locked_until IS NOT NULL")
	for _, r := range run.model.rows {
		r.locked = false
	}
}

func (run *modelRun) ownerDies(rt *rapid.T) {
	batch := run.pick(rt)
	run.exec("UPDATE {t} SET locked_until = "+run.sql.minus("locked_until", 2*lease)+" WHERE lock_token = ?", batch.Lease.Token.String())
	for _, r := range run.model.rows {
		if r.token == batch.Lease.Token && r.leased() {
			r.locked = false
		}
	}
}

func (run *modelRun) renewOne(rt *rapid.T) {
	batch := run.pick(rt)
	want := 0
	for _, r := range run.model.rows {
		if r.token == batch.Lease.Token && r.leased() {
			r.locked = true
			want++
		}
	}
	kept, err := run.Store.Renew(run.Context(), batch.Lease)
	require.NoError(rt, err)
	require.Equal(rt, want, kept)
}
