package storetest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var listTests = []test{
	{name: "Everything", run: testListModel},
	{name: "Scan", run: testListScan},
	{name: "Deferred", run: testListDeferred},
	{name: "DeferredForever", run: testListDeferredForever},
	{name: "WhileRowsComeAndGo", run: testListMoving},
	{name: "WrongRequests", run: testListWrong},
}

// listed are the ids that a request asks for, in their order.
func listed(rows []browsed, request admin.ListRequest) []int64 {
	var found []browsed
	for i := range rows {
		if rows[i].matches(request) {
			found = append(found, rows[i])
		}
	}
	slices.SortFunc(found, func(a, b browsed) int {
		if request.Status.Terminal() {
			return cmp.Or(b.finished.Compare(a.finished), cmp.Compare(b.id, a.id))
		}
		return cmp.Compare(b.id, a.id)
	})
	ids := make([]int64, len(found))
	for i := range found {
		ids[i] = found[i].id
	}
	return ids
}

// testListModel compares every list with what a naive reader finds, page by page.
func testListModel(t *table) {
	rows := someRows(90, rand.New(rand.NewPCG(1, 2))) // the same rows each time
	t.write(rows)
	for _, status := range outbox.Statuses() {
		request := admin.ListRequest{Broker: broker, Status: status, Limit: 3, Scan: 1000}
		want := listed(rows, request)
		require.Greater(t, len(want), 2*request.Limit, "there is more than a page of each")
		assert.Equal(t, want, recordIDs(t.pages(request, nil)), status)
		middle := slices.IndexFunc(rows, func(row browsed) bool { return row.id == want[len(want)/2] })
		request.Filter.Since = rows[middle].created
		assert.Contains(t, recordIDs(t.pages(request, nil)), rows[middle].id, "from since on")
		request.Filter.Since, request.Filter.Until = time.Time{}, request.Filter.Since
		assert.NotContains(t, recordIDs(t.pages(request, nil)), rows[middle].id, "before until")
	}
	rapid.Check(t.T, func(r *rapid.T) {
		request := admin.ListRequest{
			Broker: rapid.SampledFrom([]string{broker, "another", "nobody"}).Draw(r, "broker"), Status: rapid.SampledFrom(outbox.Statuses()).Draw(r, "status"),
			Filter: admin.Filter{
				Type: rapid.SampledFrom([]string{"", "Shipped", "Ordering.*", "Ordering.P*", "*", "Ship"}).Draw(r, "type"),
				Key:  rapid.SampledFrom([]string{"", "", "k1", "k2", "k3"}).Draw(r, "key"), ErrorClass: rapid.SampledFrom([]string{"", "", "retryable", "permanent", "x"}).Draw(r, "class"),
			},
			Limit: rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(r, "limit"),
		}
		request.Scan = request.Limit + rapid.SampledFrom([]int{0, 1, 5, 1000}).Draw(r, "scan")
		if rapid.Bool().Draw(r, "since") {
			request.Filter.Since = rows[rapid.IntRange(0, len(rows)-1).Draw(r, "first")].created
		}
		if rapid.Bool().Draw(r, "until") {
			request.Filter.Until = rows[rapid.IntRange(0, len(rows)-1).Draw(r, "end")].created
			if !request.Filter.Since.IsZero() && !request.Filter.Since.Before(request.Filter.Until) {
				request.Filter.Since = time.Time{}
			}
		}
		want := listed(rows, request)
		require.Equal(r, want, recordIDs(t.pages(request, nil)))
	})
}

// A rare row is found over several pages, each of which looks at a bounded number of rows.
func testListScan(t *table) {
	for _, status := range outbox.Statuses() {
		rows := make([]browsed, 50)
		for i := range rows {
			rows[i] = browsed{broker: string(status), status: status, eventType: "common", created: time.Now(), finished: time.Now().Add(-time.Duration((len(rows)-i)/4) * time.Second)}
			if status == outbox.StatusFailed {
				rows[i].class = "retryable"
			}
		}
		rows[0].eventType = "rare"
		rows[25].eventType = "rare"
		t.write(rows)
		request := admin.ListRequest{Broker: string(status), Status: status, Filter: admin.Filter{Type: "rare"}, Limit: 2, Scan: 10}
		list, err := t.Store.List(t.Context(), request)
		require.NoError(t, err)
		assert.LessOrEqual(t, list.Scanned, 10, status)
		assert.Empty(t, list.Records, status)
		assert.NotZero(t, list.Next, "%s: an empty page has a next one", status)
		pages := 1
		assert.Len(t, t.pages(request, func(int) { pages++ }), 2, status)
		assert.GreaterOrEqual(t, pages, 5, status)
	}
}

// Deferred rows are listed among the others of their status, and say which message they wait for.
func testListDeferred(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[1])
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	late := t.add(k[0])
	request := admin.ListRequest{Broker: broker, Status: outbox.StatusPending, Limit: 10, Scan: 10}
	records := t.pages(request, nil)
	require.Equal(t, []int64{late[0], ids[2], ids[1]}, recordIDs(records))
	assert.Equal(t, []bool{false, false, true}, []bool{records[0].Deferred, records[1].Deferred, records[2].Deferred})
	require.NotNil(t, records[0].Deferral, "it waits as well, though it is not deferred yet")
	assert.Equal(t, t.messageID(ids[0]), records[0].Deferral.MessageID)
	for size := range 3 {
		request.Limit, request.Scan = size+1, size+1
		assert.Equal(t, []int64{late[0], ids[2], ids[1]}, recordIDs(t.pages(request, nil)), "%d on a page", size+1)
	}
	request.Limit, request.Scan = 10, 10
	behind := func(records []admin.Record) {
		t.Helper()
		deferral := records[len(records)-1].Deferral
		require.NotNil(t, deferral)
		assert.Equal(t, "backoff", deferral.Reason)
		assert.Equal(t, t.messageID(ids[0]), deferral.MessageID)
		assert.WithinDuration(t, time.Now().Add(lease), deferral.Until, lease)
		assert.True(t, deferral.Until.After(time.Now().Add(-lease)))
	}
	behind(records)
	message, err := t.Store.Message(t.Context(), t.messageID(ids[1]))
	require.NoError(t, err)
	behind(message)
	request.Filter.Key = k[0]
	records = t.pages(request, nil)
	require.Equal(t, []int64{late[0], ids[1]}, recordIDs(records))
	assert.Equal(t, []bool{false, true}, []bool{records[0].Deferred, records[1].Deferred})
	behind(records)
	request.Status = outbox.StatusFailed
	for _, request.Filter.Key = range []string{k[0], ""} {
		records = t.pages(request, nil)
		assert.Equal(t, ids[:1], recordIDs(records))
		behind(records) // of itself
	}
	request.Status = outbox.StatusProcessing
	assert.Empty(t, t.pages(request, nil))
	request.Status = outbox.StatusFailed
	assert.Equal(t, 1, t.requeue(t.these(ids[0])))
	assert.Empty(t, t.pages(request, nil), "its error is still there, and it has not failed")
	request.Status = outbox.StatusPending
	records = t.pages(request, nil)
	require.Equal(t, []int64{late[0], ids[2], ids[1], ids[0]}, recordIDs(records))
	if deferral := records[2].Deferral; assert.NotNil(t, deferral) {
		assert.True(t, deferral.Until.IsZero(), "what it waits for can go at once")
		assert.Equal(t, t.messageID(ids[0]), deferral.MessageID)
	}
}

// Rows behind an abandoned one wait for an operator.
func testListDeferredForever(t *table) {
	ids := t.add("key", "key", "key")
	t.abandonAndBlock(ids[0])
	t.deferRows()
	records := t.pages(admin.ListRequest{Broker: broker, Status: outbox.StatusPending, Limit: 10, Scan: 10}, nil)
	require.Equal(t, []int64{ids[2], ids[1]}, recordIDs(records))
	for i := range records {
		require.NotNil(t, records[i].Deferral)
		assert.WithinDuration(t, time.Now(), records[i].Deferral.Since, time.Hour)
		records[i].Deferral.Since = time.Time{}
		assert.Equal(t, &admin.Deferral{Reason: "operator", MessageID: t.messageID(ids[0])}, records[i].Deferral)
	}
	records = t.pages(admin.ListRequest{Broker: broker, Status: outbox.StatusAbandoned, Limit: 10, Scan: 10}, nil)
	require.Equal(t, ids[:1], recordIDs(records))
	assert.Nil(t, records[0].Deferral, "it waits for nothing")
}

// What stays in its status from the first page to the last is shown once, whatever else comes and
// goes.
func testListMoving(t *table) {
	for n, status := range outbox.Statuses() {
		random := rand.New(rand.NewPCG(3, uint64(n))) // the same moves each time
		t.exec("DELETE FROM {t}")
		at := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
		row := func(finished time.Time) browsed {
			return browsed{broker: broker, status: status, eventType: "T", class: "retryable", created: at, finished: finished}
		}
		rows := make([]browsed, 40)
		for i := range rows {
			rows[i] = row(at.Add(time.Duration(random.IntN(6)) * time.Second))
		}
		t.write(rows)
		gone := map[int64]bool{}
		request := admin.ListRequest{Broker: broker, Status: status, Limit: 4, Scan: 4}
		got := recordIDs(t.pages(request, func(page int) {
			added := []browsed{row(at.Add(time.Hour).Add(time.Duration(page) * time.Second))}
			t.write(added)
			leaves := rows[random.IntN(len(rows))]
			gone[leaves.id] = true
			leaves.status = outbox.StatusPublished
			if status == outbox.StatusPublished {
				leaves.status = outbox.StatusPending
			}
			leaves.finished = at.Add(time.Hour)
			t.dress(&leaves)
		}))
		assert.Len(t, slices.Compact(slices.Sorted(slices.Values(got))), len(got), "%s: no row twice", status)
		for i := range rows {
			if !gone[rows[i].id] {
				assert.Contains(t, got, rows[i].id, "%s: none is left out", status)
			}
		}
	}
}

func testListWrong(t *table) {
	t.add("key")
	good := admin.ListRequest{Broker: broker, Status: outbox.StatusPending, Limit: 2, Scan: 2}
	_, err := t.Store.List(t.Context(), good)
	require.NoError(t, err)
	for name, change := range map[string]func(*admin.ListRequest){
		"no status":         func(r *admin.ListRequest) { r.Status = "" },
		"unknown status":    func(r *admin.ListRequest) { r.Status = "done" },
		"no limit":          func(r *admin.ListRequest) { r.Limit = 0 },
		"negative limit":    func(r *admin.ListRequest) { r.Limit = -1 },
		"scan below limit":  func(r *admin.ListRequest) { r.Scan = 1 },
		"broker of no row":  func(r *admin.ListRequest) { r.Broker = "a\x00" },
		"key of no row":     func(r *admin.ListRequest) { r.Filter.Key = "\xff" },
		"until before then": func(r *admin.ListRequest) { r.Filter.Since, r.Filter.Until = time.Now(), time.Now().Add(-time.Hour) },
	} {
		request := good
		change(&request)
		_, err := t.Store.List(t.Context(), request)
		assert.Error(t, err, name)
	}
	_, err = t.Store.Overview(t.Context(), 0)
	require.ErrorContains(t, err, "limit")
	for _, c := range []struct {
		broker          string
		limit, maxCount int
	}{{broker, 0, 1}, {broker, 1, 0}, {"\x00", 1, 1}} {
		_, err = t.Store.KeyBlocks(t.Context(), c.broker, c.limit, c.maxCount)
		assert.Error(t, err, "%+v", c)
	}
}
