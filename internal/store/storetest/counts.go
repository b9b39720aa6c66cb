package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var countsTests = []test{
	{name: "PerBrokerAndStatus", run: testCounts},
	{name: "LastError", run: testLastError},
	{name: "Backlog", run: testBacklog},
	{name: "BacklogOfTheConfiguration", run: testBacklogConfigured},
	{name: "InventedBrokers", run: testInvented},
}

func (t *table) counts() []admin.BrokerCounts {
	t.Helper()
	counts, err := t.Store.Counts(t.Context())
	require.NoError(t, err)
	return counts
}

func testCounts(t *table) {
	assert.Empty(t, t.counts())
	t.finish(2)
	k := t.keys(3)
	ids := t.add(k...)
	batch := t.claim(limit(2))
	require.Len(t, batch.Messages, 2)
	s := retryLater(batch, ids[0])
	s.Published = nil
	require.Zero(t, t.complete(s).Lost)
	t.age(ids[2], "created_at", 2*time.Hour)
	row := newRow("")
	row.TargetBroker = "another"
	done := t.insert(row)[0]
	t.exec("UPDATE {t} SET status = 'published', published_at = created_at, finished_at = created_at WHERE id = ?", done)

	counts := t.counts()
	require.Len(t, counts, 2)
	assert.Equal(t, admin.BrokerCounts{Broker: "another", Counts: map[outbox.Status]int64{
		outbox.StatusPending: 0, outbox.StatusProcessing: 0, outbox.StatusFailed: 0, outbox.StatusPublished: 1, outbox.StatusAbandoned: 0,
	}}, counts[0])
	assert.Equal(t, broker, counts[1].Broker)
	assert.Equal(t, map[outbox.Status]int64{
		outbox.StatusPending: 1, outbox.StatusProcessing: 1, outbox.StatusFailed: 1, outbox.StatusPublished: 2, outbox.StatusAbandoned: 2,
	}, counts[1].Counts)
	assert.InDelta(t, 2*time.Hour.Seconds(), counts[1].OldestPending.Seconds(), 60)
}

// The last error is that of the row that failed last, wherever it stands; a published row's is
// history.
func testLastError(t *table) {
	k := t.keys(4)
	ids := t.add(k...)
	at := func(second string) string {
		return `{"class":"retryable","message":"` + second + `","at":"2026-01-02T03:04:` + second + `.5Z","attempt":1}`
	}
	batch := t.claim()
	s := &driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{
		{ID: ids[0], Status: outbox.StatusFailed, Spent: true, LastError: at("07")},
		{ID: ids[1], Status: outbox.StatusAbandoned, Spent: true, LastError: at("09")},
		{ID: ids[2], Status: outbox.StatusPending, LastError: "written by hand"},
		{ID: ids[3], Status: outbox.StatusFailed, Spent: true, LastError: at("10")},
	}}
	require.Zero(t, t.complete(s).Lost)
	assert.Equal(t, at("10"), t.counts()[0].LastError)
	batch = t.claim()
	require.Equal(t, []int64{ids[0], ids[2], ids[3]}, taken(batch))
	require.Zero(t, t.complete(&driver.Completion{Lease: batch.Lease, Published: []driver.Delivered{{ID: ids[3]}}}).Lost)
	assert.Equal(t, at("09"), t.counts()[0].LastError)
	t.exec("DELETE FROM {t} WHERE id IN (?, ?)", ids[0], ids[1])
	assert.Equal(t, "written by hand", t.counts()[0].LastError)
}

func (t *table) backlog() []admin.Backlog {
	t.Helper()
	backlog, err := t.Store.Backlog(t.Context())
	require.NoError(t, err)
	return backlog
}

func testBacklog(t *table) {
	assert.Empty(t, t.backlog())
	t.finish(2)
	assert.Empty(t, t.backlog(), "finished rows are none")
	k := t.keys(2)
	ids := t.add(k...)
	row := newRow("x")
	row.TargetBroker = "another"
	t.insert(row)
	t.age(ids[1], "created_at", 2*time.Hour)
	backlog := t.backlog()
	require.Len(t, backlog, 2)
	assert.Equal(t, "another", backlog[0].Broker)
	assert.Less(t, backlog[0].Lag, time.Hour)
	assert.Equal(t, broker, backlog[1].Broker)
	assert.Less(t, backlog[1].Lag, time.Hour, "the first row of the shard counts")

	t.age(ids[0], "created_at", 3*time.Hour)
	assert.InDelta(t, 3*time.Hour.Seconds(), t.backlog()[1].Lag.Seconds(), 60)
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	assert.Zero(t, t.backlog()[1].Lag, "all are claimed")
	require.Zero(t, t.complete(retryLater(batch, ids...)).Lost)
	assert.Zero(t, t.backlog()[1].Lag, "all must wait")
	t.age(ids[0], "locked_until", 11*time.Minute)
	assert.InDelta(t, 10*time.Minute.Seconds(), t.backlog()[1].Lag.Seconds(), 60, "since the end of its backoff")
}

// The brokers of the configuration are listed with rows or without, others where they have open rows,
// wherever their names stand among those.
func testBacklogConfigured(t *table) {
	t.Store.Know("d", "b")
	assert.Equal(t, []admin.Backlog{{Broker: "b"}, {Broker: "d"}}, t.backlog())
	for _, name := range []string{"a", "a0", "c", "d", "e", "f"} {
		row := newRow("key")
		row.TargetBroker, row.AvailableAt = name, time.Now().Add(time.Hour)
		if name == "f" || name == "c" {
			row.AvailableAt = time.Time{}
		}
		id := t.insert(row)[0]
		if name == "f" || name == "c" {
			t.putOff(id)
			require.Equal(t, 1, t.deferRows(func(c *driver.Claim) { c.Broker, c.Shard = name, t.shardOf(id) }))
		}
	}
	unknown := func(name string) admin.Backlog { return admin.Backlog{Broker: name, Unknown: true} }
	assert.Equal(t, []admin.Backlog{unknown("a"), unknown("a0"), {Broker: "b"}, unknown("c"), {Broker: "d"}, unknown("e"), unknown("f")}, t.backlog())
}

// Whoever may write rows may invent brokers: those of the configuration are reported all the same, and
// of the others no more than are bounded.
func testInvented(t *table) {
	const invented = admin.MaxStrangers + 30
	var rows []outbox.Row
	for i := range invented {
		row := newRow(fmt.Sprint("key-", i))
		row.TargetBroker = fmt.Sprintf("invented-%03d", i)
		rows = append(rows, row)
	}
	ours := newRow("key")
	ours.TargetBroker = "zz-ours" // behind them
	t.insert(append(rows, ours, newRow("key"))...)
	t.Store.Know("zz-ours", broker, "without-rows")
	known := func(name string) bool { return !strings.HasPrefix(name, "invented-") }

	overview, err := t.Store.Overview(t.Context(), many)
	require.NoError(t, err)
	backlog := t.backlog()
	counts := t.counts()
	listed := map[string][]string{}
	for i := range overview {
		listed["overview"] = append(listed["overview"], overview[i].Broker)
	}
	for i := range backlog {
		listed["backlog"] = append(listed["backlog"], backlog[i].Broker)
		assert.Equal(t, !known(backlog[i].Broker), backlog[i].Unknown, backlog[i].Broker)
	}
	var sum int64
	for i := range counts {
		listed["counts"] = append(listed["counts"], counts[i].Broker)
		sum += counts[i].Counts[outbox.StatusPending]
	}
	assert.EqualValues(t, len(rows)+2, sum, "rows that are not distinguished are counted all the same")
	t.exec("UPDATE {t} SET status = 'abandoned', finished_at = created_at")
	if listed["finished"], err = t.Store.FinishedBrokers(t.Context()); err != nil {
		require.NoError(t, err)
	}
	for name, all := range listed {
		assert.Contains(t, all, "zz-ours", name)
		assert.Contains(t, all, broker, name)
		strangers := slices.DeleteFunc(slices.Clone(all), func(one string) bool { return known(one) || one == admin.OtherBrokers })
		want := admin.MaxStrangers
		if name == "finished" { // what is not listed would not be purged
			want = invented
		}
		assert.Len(t, strangers, want, name)
	}
}

var overviewTests = []test{
	{name: "Brokers", run: testOverviewBrokers},
	{name: "Counts", run: testOverviewCounts},
	{name: "Times", run: testOverviewTimes},
}

func (t *table) overview(limit int) []admin.BrokerOverview {
	t.Helper()
	overview, err := t.Store.Overview(t.Context(), limit)
	require.NoError(t, err)
	return overview
}

// A broker is listed whatever it is that its rows are.
func testOverviewBrokers(t *table) {
	assert.Empty(t, t.overview(1))
	var rows []browsed
	want := map[string]bool{}
	for _, status := range outbox.Statuses() {
		rows = append(rows, browsed{broker: "only-" + string(status), status: status, eventType: "T", class: "x", created: time.Now(), finished: time.Now()})
	}
	rows = append(rows,
		browsed{broker: "Deferred", status: outbox.StatusPending, key: "k", eventType: "T", created: time.Now(), deferred: true},
		browsed{broker: "deferred-and-failed", status: outbox.StatusFailed, class: "x", eventType: "T", created: time.Now(), deferred: true})
	t.write(rows)
	for i := range rows {
		want[rows[i].broker] = true
	}
	overview := t.overview(10)
	require.Len(t, overview, len(want))
	for i, o := range overview {
		assert.True(t, want[o.Broker], o.Broker)
		if i > 0 {
			assert.Less(t, overview[i-1].Broker, o.Broker, "sorted by name")
		}
	}
	assert.Equal(t, admin.Count{N: 1}, overview[0].Deferred)
	assert.Equal(t, admin.Count{N: 1}, overview[0].Counts[outbox.StatusPending], "deferred rows count as pending")
	assert.Zero(t, overview[0].Counts[outbox.StatusPublished])
}

// A count is exact, or says that it is not; where there are no more rows than its limit, it is
// exact.
func testOverviewCounts(t *table) {
	rows := someRows(90, rand.New(rand.NewPCG(5, 6))) // the same rows each time
	t.write(rows)
	type key struct {
		broker string
		status outbox.Status
	}
	want, open := map[key]int64{}, map[string]int64{}
	for i := range rows {
		want[key{rows[i].broker, rows[i].status}]++
		if !rows[i].status.Terminal() {
			open[rows[i].broker]++
		}
		if rows[i].deferred {
			want[key{rows[i].broker, "deferred"}]++
		}
	}
	for _, limit := range []int{1, 2, 3, 5, 8, 13, 40, 89, 1000} {
		overview := t.overview(limit)
		require.Len(t, overview, 2)
		for _, o := range overview {
			counts := map[outbox.Status]admin.Count{"deferred": o.Deferred}
			for _, status := range outbox.Statuses() {
				counts[status] = o.Counts[status]
			}
			for status, count := range counts {
				n := want[key{o.Broker, status}]
				bound := n
				if !status.Terminal() {
					bound = open[o.Broker]
				}
				assert.LessOrEqual(t, count.N, min(n, int64(limit)), "%s %s of %d, up to %d", o.Broker, status, n, limit)
				if bound < int64(limit) || !count.More {
					assert.Equal(t, admin.Count{N: n}, count, "%s %s up to %d", o.Broker, status, limit)
				}
				if n > int64(limit) {
					assert.True(t, count.More, "%s %s of %d, up to %d", o.Broker, status, n, limit)
				}
			}
		}
	}
	t.exec("DELETE FROM {t}")
	t.add("a", "b", "c", "d")
	assert.Equal(t, admin.Count{N: 3, More: true}, t.overview(3)[0].Counts[outbox.StatusPending], "it goes as far as it may")
}

func testOverviewTimes(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[1])
	t.age(ids[0], "created_at", 3*time.Hour)
	o := t.overview(10)[0]
	assert.InDelta(t, 3*time.Hour.Seconds(), o.OldestPending.Seconds(), 60)
	assert.InDelta(t, 3*time.Hour.Seconds(), o.Lag.Seconds(), 60)
	assert.Zero(t, o.LastPublished)

	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	o = t.overview(10)[0]
	assert.InDelta(t, 3*time.Hour.Seconds(), o.OldestPending.Seconds(), 60, "deferred rows are not finished")
	assert.Less(t, o.Lag, time.Minute, "and waits for its time")
	assert.Equal(t, admin.Count{N: 2}, o.Deferred)
	assert.Equal(t, admin.Count{N: 1}, o.Counts[outbox.StatusFailed])
	assert.Equal(t, admin.Count{N: 2}, o.Counts[outbox.StatusPending])

	t.next(ids[2])
	t.exec("UPDATE {t} SET published_at = "+t.sql.minus("published_at", time.Hour)+", finished_at = "+t.sql.minus("finished_at", time.Hour)+" WHERE id = ?", ids[2])
	assert.WithinDuration(t, time.Now().Add(-time.Hour), t.overview(10)[0].LastPublished, time.Minute)
	t.pass()
	t.next(ids[0])
	t.next(ids[1])
	o = t.overview(10)[0]
	assert.WithinDuration(t, time.Now(), o.LastPublished, time.Minute)
	assert.Zero(t, o.OldestPending)
	assert.Zero(t, o.Lag)
}
