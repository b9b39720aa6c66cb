package storetest

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A call is one action with what it needs to be refused or to find nothing.
type call struct {
	name string
	run  func(admin.Filter, int) (int, error)
}

func (t *table) calls() []call {
	t.Helper()
	operator := t.Store
	return []call{
		{"requeue", func(f admin.Filter, limit int) (int, error) { return operator.Requeue(t.Context(), f, limit) }},
		{"replay", func(f admin.Filter, limit int) (int, error) { return operator.Replay(t.Context(), f, limit) }},
		{"abandon", func(f admin.Filter, limit int) (int, error) {
			return operator.Abandon(t.Context(), f, "because", limit)
		}},
		{"matches", func(f admin.Filter, limit int) (int, error) { return operator.Matches(t.Context(), f, limit) }},
	}
}

func testOperateWrong(t *table) {
	rows := t.everyState()
	before := t.outlines(rows)
	now := time.Now()
	refused := map[string]map[outbox.Status]bool{
		"requeue": {outbox.StatusPublished: true},
		"replay":  {outbox.StatusPending: true, outbox.StatusProcessing: true, outbox.StatusFailed: true, outbox.StatusAbandoned: true},
		"abandon": {outbox.StatusPublished: true, outbox.StatusAbandoned: true},
	}
	for _, action := range t.calls() {
		for _, c := range []struct {
			filter admin.Filter
			limit  int
			want   string
		}{
			{admin.Filter{}, 0, "limit is 0"},
			{admin.Filter{}, -1, "limit is -1"},
			{admin.Filter{MessageIDs: []string{uuid.NewString(), "42"}}, 1, `"42"`},
			{admin.Filter{MessageIDs: []string{""}}, 1, `""`},
			{admin.Filter{Statuses: []outbox.Status{"done"}}, 1, `"done"`},
			{admin.Filter{Since: now, Until: now}, 1, "since"},
			{admin.Filter{Since: now, Until: now.Add(-time.Hour)}, 1, "since"},
			{admin.Filter{Broker: "a\x00b"}, 1, "broker"},
			{admin.Filter{Key: "\xff"}, 1, "key"},
			{admin.Filter{Type: "\x00*"}, 1, "type"},
			{admin.Filter{ErrorClass: "\x00"}, 1, "error class"},
		} {
			n, err := action.run(c.filter, c.limit)
			require.ErrorContains(t, err, c.want, action.name)
			assert.ErrorContains(t, err, action.name)
			assert.Zero(t, n)
		}
		for status := range refused[action.name] {
			_, err := action.run(admin.Filter{Statuses: []outbox.Status{status}}, 1)
			assert.ErrorContains(t, err, string(status), action.name)
		}
		n, err := action.run(admin.Filter{Broker: "nobody"}, 1)
		require.NoError(t, err)
		assert.Zero(t, n, "%s for an unknown broker", action.name)
	}
	operator := t.Store
	_, err := operator.UnblockKey(t.Context(), broker, "")
	require.ErrorContains(t, err, "key")
	_, err = operator.UnblockKey(t.Context(), "", "key")
	require.ErrorContains(t, err, "broker")
	_, err = operator.BlockedKeys(t.Context(), broker, 0)
	require.ErrorContains(t, err, "limit is 0")
	t.checkStates(rows, before, nil)
}

// oddRows writes failed rows that differ in what filters look at.
func (t *table) oddRows() []int64 {
	t.Helper()
	rows := make([]outbox.Row, 10)
	for i := range rows {
		rows[i] = newRow("key-" + string(rune('a'+i)))
	}
	for i, name := range []string{
		"Ordering.OrderPlaced.v1", "Ordering.OrderPlaced.v2", "Ordering.Order%laced.v1", "Ordering_OrderPlaced.v1", "ordering.orderplaced.v1",
		`Ordering\.OrderPlaced`, "Ordering.*", "Ordering", "Ordering.[O]rderPlaced.v1", "Ördering.✓",
	} {
		rows[i].Type = name
	}
	rows[1].OrderingKey, rows[2].OrderingKey = "", "schlüssel % _ '\"🔑"
	rows[3].TargetBroker, rows[4].TargetBroker = "another", "Broker"
	ids := t.insert(rows...)
	t.exec("UPDATE {t} SET status = 'failed', last_error = ?", `{"class":"retryable","message":"\"class\":\"permanent\""}`)
	t.exec(`UPDATE {t} SET last_error = '{"class":"permanent","message":"x","at":"2026-01-02T03:04:05Z","attempt":1}' WHERE id = ?`, ids[5])
	t.exec("UPDATE {t} SET last_error = 'permanent, written by hand' WHERE id = ?", ids[6])
	t.exec("UPDATE {t} SET last_error = NULL WHERE id = ?", ids[7])
	return ids
}

// select runs a filter through Matches and through an action, and returns the positions of what it
// has changed.
func (t *table) selected(ids []int64, filter admin.Filter) []int {
	t.Helper()
	matches, err := t.Store.Matches(t.Context(), filter, many)
	require.NoError(t, err, "%+v", filter)
	assert.Equal(t, matches, t.requeue(filter), "%+v", filter)
	got := []int{}
	for i, id := range ids {
		if t.state(id).Status == "pending" {
			got = append(got, i)
		}
	}
	t.exec("UPDATE {t} SET status = 'failed'")
	assert.Len(t, got, matches)
	return got
}

func testFilters(t *table) {
	ids := t.oddRows()
	id := func(i int) string { return t.messageID(ids[i]) }
	for _, c := range []struct {
		filter admin.Filter
		want   []int
	}{
		{admin.Filter{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{admin.Filter{Broker: broker}, []int{0, 1, 2, 5, 6, 7, 8, 9}},
		{admin.Filter{Broker: "another"}, []int{3}},
		{admin.Filter{Broker: "Broker"}, []int{4}},
		{admin.Filter{Broker: "broke"}, []int{}},
		{admin.Filter{Broker: "%"}, []int{}},
		{admin.Filter{Statuses: []outbox.Status{outbox.StatusFailed}}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{admin.Filter{Statuses: []outbox.Status{outbox.StatusAbandoned, outbox.StatusPending}}, []int{}},
		{admin.Filter{Type: "Ordering.OrderPlaced.v1"}, []int{0}},
		{admin.Filter{Type: "Ordering.OrderPlaced"}, []int{}},
		{admin.Filter{Type: "Ordering.OrderPlaced*"}, []int{0, 1}},
		{admin.Filter{Type: "Ordering.OrderPlaced.v1*"}, []int{0}},
		{admin.Filter{Type: "Ordering.Order%*"}, []int{2}},
		{admin.Filter{Type: "Ordering_*"}, []int{3}},
		{admin.Filter{Type: "Ordering%"}, []int{}},
		{admin.Filter{Type: "Ordering.[O]*"}, []int{8}},
		{admin.Filter{Type: "[O]rdering*"}, []int{}},
		{admin.Filter{Type: `Ordering\*`}, []int{5}},
		{admin.Filter{Type: `Ordering\.OrderPlaced`}, []int{5}},
		{admin.Filter{Type: "Ordering.*"}, []int{0, 1, 2, 6, 8}},
		{admin.Filter{Type: "Ordering.**"}, []int{6}},
		{admin.Filter{Type: "Ordering*"}, []int{0, 1, 2, 3, 5, 6, 7, 8}},
		{admin.Filter{Type: "*.v1"}, []int{}},
		{admin.Filter{Type: "*"}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{admin.Filter{Type: "Ör*"}, []int{9}},
		{admin.Filter{Type: strings.Repeat("x", 3000) + "*"}, []int{}},
		{admin.Filter{Key: "key-a"}, []int{0}},
		{admin.Filter{Key: "key-*"}, []int{}},
		{admin.Filter{Key: "KEY-A"}, []int{}},
		{admin.Filter{KeyPrefix: "key-"}, []int{0, 3, 4, 5, 6, 7, 8, 9}},
		{admin.Filter{KeyPrefix: "key-a"}, []int{0}},
		{admin.Filter{KeyPrefix: "KEY-"}, []int{}},
		{admin.Filter{KeyPrefix: "schlüssel % _ '\""}, []int{2}},
		{admin.Filter{KeyPrefix: "%"}, []int{}},
		{admin.Filter{KeyPrefix: "key-*"}, []int{}},
		{admin.Filter{KeyPrefix: strings.Repeat("x", 3000)}, []int{}},
		{admin.Filter{Key: "schlüssel % _ '\"🔑"}, []int{2}},
		{admin.Filter{MessageIDs: []string{id(1)}}, []int{1}},
		{admin.Filter{MessageIDs: []string{id(8), strings.ToUpper(id(1)), "{" + id(1) + "}", uuid.NewString()}}, []int{1, 8}},
		{admin.Filter{MessageIDs: []string{uuid.NewString()}}, []int{}},
		{admin.Filter{MessageIDs: []string{}}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{admin.Filter{ErrorClass: "retryable"}, []int{0, 1, 2, 3, 4, 8, 9}},
		{admin.Filter{ErrorClass: "permanent"}, []int{5}},
		{admin.Filter{ErrorClass: "per"}, []int{}},
		{admin.Filter{ErrorClass: "%"}, []int{}},
	} {
		assert.Equal(t, c.want, t.selected(ids, c.filter), "%+v", c.filter)
	}
}

// What a search finds, an action takes: an ordering key with its context and without, an aggregate with its type and without, the ids of
// a process and of a tenant.
func testFiltersOfSearches(t *table) {
	rows := make([]outbox.Row, 6)
	for i, key := range []string{"ordering::order-42", "billing::order-42", "order-42", "ordering::order-420", "a::b::order-42", "ordering::ORDER-42"} {
		rows[i] = newRow(key)
	}
	rows[0].AggregateType, rows[0].AggregateID, rows[0].CorrelationID, rows[0].TenantID = "order", "42", "c-1", "acme"
	rows[1].AggregateType, rows[1].AggregateID, rows[1].CorrelationID, rows[1].TenantID = "invoice", "42", "c-1 ", "acme "
	rows[2].AggregateType, rows[2].AggregateID, rows[2].CorrelationID, rows[2].TenantID = "order", "420", "C-1", "ACME"
	rows[3].AggregateID, rows[3].CorrelationID = "order-42", rows[0].MessageID.String()
	ids := t.insert(rows...)
	t.exec("UPDATE {t} SET status = 'failed', last_error = ?", `{"class":"retryable"}`)
	for _, c := range []struct {
		filter admin.Filter
		want   []int
	}{
		{admin.Filter{Key: "order-42"}, []int{0, 1, 2}},
		{admin.Filter{Key: "ordering::order-42"}, []int{0}},
		{admin.Filter{Key: "b::order-42"}, []int{}},
		{admin.Filter{Key: "a::b::order-42"}, []int{4}},
		{admin.Filter{Key: "order-4%"}, []int{}},
		{admin.Filter{Key: "::order-42"}, []int{}},
		{admin.Filter{Aggregate: "42"}, []int{0, 1}},
		{admin.Filter{Aggregate: "order-42"}, []int{0, 3}},
		{admin.Filter{Aggregate: "order 42"}, []int{0}},
		{admin.Filter{Aggregate: "-42"}, []int{}},
		{admin.Filter{Correlation: "c-1"}, []int{0}},
		{admin.Filter{Correlation: "c-1 "}, []int{1}},
		{admin.Filter{Correlation: strings.ToUpper(rows[0].MessageID.String())}, []int{3}},
		{admin.Filter{Tenant: "acme"}, []int{0}},
		{admin.Filter{Tenant: "ACME"}, []int{2}},
		{admin.Filter{Tenant: "acm_"}, []int{}},
		{admin.Filter{Key: "order-42", Tenant: "acme ", Aggregate: "42"}, []int{1}},
		{admin.Filter{Key: "order-42", Tenant: "acme", Aggregate: "invoice-42"}, []int{}},
	} {
		assert.Equal(t, c.want, t.selected(ids, c.filter), "%+v", c.filter)
	}
}

func testFiltersCombined(t *table) {
	ids := t.oddRows()
	all := admin.Filter{
		Broker: broker, Statuses: []outbox.Status{outbox.StatusFailed, outbox.StatusAbandoned}, Type: "Ordering.*", Key: "key-a",
		MessageIDs: []string{t.messageID(ids[0]), t.messageID(ids[5])}, ErrorClass: "retryable",
		Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour),
	}
	assert.Equal(t, []int{0}, t.selected(ids, all))
	for name, change := range map[string]func(*admin.Filter){
		"broker": func(f *admin.Filter) { f.Broker = "another" },
		"status": func(f *admin.Filter) { f.Statuses = f.Statuses[1:] },
		"type":   func(f *admin.Filter) { f.Type = "Ordering.OrderPlaced.v2" },
		"key":    func(f *admin.Filter) { f.Key = "key-b" },
		"ids":    func(f *admin.Filter) { f.MessageIDs = f.MessageIDs[1:] },
		"class":  func(f *admin.Filter) { f.ErrorClass = "permanent" },
		"since":  func(f *admin.Filter) { f.Since = time.Now().Add(time.Minute) },
		"until":  func(f *admin.Filter) { f.Until = time.Now().Add(-time.Minute) },
	} {
		filter := all
		change(&filter)
		assert.Empty(t, t.selected(ids, filter), name)
	}
}

// Since is the first instant that counts, Until the first that does not.
func testFilterByTime(t *table) {
	ids := t.add("a", "b", "c")
	at := time.Now().UTC().Truncate(time.Second)
	for i, id := range ids {
		t.exec("UPDATE {t} SET status = 'failed', created_at = ? WHERE id = ?", t.sql.time(at.Add(time.Duration(i)*time.Minute)), id)
	}
	berlin := time.FixedZone("elsewhere", 2*3600)
	for _, c := range []struct {
		since, until time.Time
		want         []int
	}{
		{since: at, want: []int{0, 1, 2}},
		{since: at.Add(time.Microsecond), want: []int{1, 2}},
		{until: at, want: []int{}},
		{until: at.Add(time.Microsecond), want: []int{0}},
		{since: at.Add(time.Minute), until: at.Add(2 * time.Minute), want: []int{1}},
		{since: at.Add(time.Minute).In(berlin), until: at.Add(2 * time.Minute).In(berlin), want: []int{1}},
		{since: at.Add(3 * time.Minute), want: []int{}},
	} {
		assert.Equal(t, c.want, t.selected(ids, admin.Filter{Since: c.since, Until: c.until}), "%v %v", c.since, c.until)
	}
}
