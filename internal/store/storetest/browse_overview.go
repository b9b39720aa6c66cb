package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

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
	assert.Equal(t, admin.Count{N: 1}, overview[0].Counts[outbox.StatusPending], "what is deferred is pending all the same")
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
	assert.InDelta(t, 3*time.Hour.Seconds(), o.OldestPending.Seconds(), 60, "what is deferred is not finished either")
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
