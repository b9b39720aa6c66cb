package storetest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/eventid"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var findTests = []test{
	{name: "Terms", run: testFindTerms},
	{name: "Exact", run: testFindExact},
	{name: "Lists", run: testFindLists},
	{name: "Refused", run: testFindRefused},
}

// find returns the places of the rows that a term names, by their ids, oldest first.
func (t *table) find(ids []int64, request admin.FindRequest) (found []int) {
	t.Helper()
	if request.Limit == 0 {
		request.Limit = 1000
	}
	answer, err := t.Store.Find(t.Context(), request)
	require.NoError(t, err, request.Term)
	require.Len(t, answer.By, len(answer.Records))
	for i := range answer.Records {
		require.NotEmpty(t, answer.By[i])
		found = append(found, slices.Index(ids, answer.Records[i].ID))
	}
	slices.Reverse(found)
	return found
}

// Each value of a row leads to it, alone and among all that a term can name.
func testFindTerms(t *table) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	order := func(id string) outbox.Row {
		row := newRow("ordering::order-" + id)
		row.AggregateType, row.AggregateID = "order", id
		return row
	}
	placed, paid, other := order("42"), order("42"), order("420")
	placed.CorrelationID, placed.TenantID = "Corr-1", "acme"
	placed.Headers = `{"a":"b","traceparent":"00-` + trace + `-00f067aa0ba902b7-01"}`
	paid.Type, paid.CorrelationID, paid.CausationID = "Ordering.OrderPaid.v1", "Corr-1", placed.MessageID.String()
	toPartner := paid
	toPartner.TargetBroker = "another" // which no configuration has
	plain := newRow("order-42")        // of plain SQL, without an aggregate
	unordered := newRow("")
	unordered.AggregateType, unordered.AggregateID = "order", "42"
	elsewhere := newRow("billing::order-42")
	elsewhere.CorrelationID = "corr-1"
	ids := t.insert(placed, paid, toPartner, other, plain, unordered, elsewhere)
	t.shard = t.shardOf(ids[0])
	require.Equal(t, ids[:1], taken(t.claim(limit(1)))) // whatever has become of it

	for _, want := range []struct {
		term string
		by   admin.FindBy
		rows []int
	}{
		{placed.MessageID.String(), admin.ByMessage, []int{0}},
		{strings.ToUpper(strings.ReplaceAll(placed.MessageID.String(), "-", "")), admin.ByMessage, []int{0}},
		{"ordering::order-42", admin.ByKey, []int{0, 1, 2}},
		{"order-42", admin.ByKey, []int{0, 1, 2, 4, 6}},
		{"billing::order-42", admin.ByKey, []int{6}},
		{"42", admin.ByKey, nil},
		{"42", admin.ByAggregate, []int{0, 1, 2, 5}},
		{"order-42", admin.ByAggregate, []int{0, 1, 2, 5}},
		{"order 42", admin.ByAggregate, []int{0, 1, 2, 5}},
		{"invoice-42", admin.ByAggregate, nil},
		{"Corr-1", admin.ByCorrelation, []int{0, 1, 2}},
		{placed.MessageID.String(), admin.ByCausation, []int{1, 2}},
		{strings.ToUpper(placed.MessageID.String()), admin.ByCausation, []int{1, 2}},
		{trace, admin.ByTrace, []int{0}},
		{strings.ToUpper(trace), admin.ByTrace, []int{0}},
		{"00-" + trace + "-b7ad6b7169203331-01", admin.ByTrace, []int{0}},
		{"acme", admin.ByTenant, []int{0}},
		{"Ordering.OrderPaid.v1", admin.ByType, []int{1, 2}},
	} {
		assert.Equal(t, want.rows, t.find(ids, admin.FindRequest{Term: want.term, By: []admin.FindBy{want.by}}), "%s %s", want.by, want.term)
	}
	for term, want := range map[string][]int{
		placed.MessageID.String(): {0, 1, 2}, "order-42": {0, 1, 2, 4, 5, 6}, "42": {0, 1, 2, 5}, "Corr-1": {0, 1, 2}, trace: {0}, "acme": nil, "Ordering.OrderPaid.v1": nil, "order": nil,
	} {
		assert.Equal(t, want, t.find(ids, admin.FindRequest{Term: term}), term)
	}
	assert.Equal(t, []int{2}, t.find(ids, admin.FindRequest{Term: "order-42", Broker: "another"}))

	answer, err := t.Store.Find(t.Context(), admin.FindRequest{Term: placed.MessageID.String(), Limit: 10})
	require.NoError(t, err)
	require.Len(t, answer.Records, 3)
	assert.Equal(t, [][]admin.FindBy{{admin.ByCausation}, {admin.ByCausation}, {admin.ByMessage}}, answer.By)
	assert.Equal(t, outbox.StateBehind, answer.Records[1].State, "as lists have it")
	assert.Equal(t, outbox.StateClaimed, answer.Records[2].State)
}

// What is nearly the same is not found: texts whose hashes are equal, that differ in case or in spaces at their end, or
// that a pattern would match.
func testFindExact(t *table) {
	// Two texts with one CRC-32, and two with one of PostgreSQL's short hashes.
	const plumless, buckeroo, order242, order817 = "plumless", "buckeroo", "order-242", "order-817"
	row := func(value string) outbox.Row {
		r := newRow("ordering::" + value)
		r.AggregateType, r.AggregateID, r.CorrelationID, r.CausationID, r.TenantID, r.Type = "order", value, value, value, value, value
		return r
	}
	values := []string{plumless, buckeroo, order242, order817, "Plumless", "plumless ", "plum%", "plum_ess", `a'b"c\d`, "日本", "::", ":x", "x", strings.Repeat("y", 400)}
	rows := make([]outbox.Row, len(values))
	for i, value := range values {
		rows[i] = row(value)
	}
	ids := t.insert(rows...)
	for i, value := range values {
		for _, by := range []admin.FindBy{admin.ByAggregate, admin.ByCorrelation, admin.ByCausation, admin.ByTenant, admin.ByType} {
			assert.Equal(t, []int{i}, t.find(ids, admin.FindRequest{Term: value, By: []admin.FindBy{by}}), "%s %q", by, value)
		}
		assert.Equal(t, []int{i}, t.find(ids, admin.FindRequest{Term: "ordering::" + value, By: []admin.FindBy{admin.ByKey}}), "key %q", value)
		if !strings.Contains(value, ":") {
			assert.Equal(t, []int{i}, t.find(ids, admin.FindRequest{Term: value, By: []admin.FindBy{admin.ByKey}}), "key %q without its context", value)
		}
	}
	for _, term := range []string{"plum", "PLUMLESS", "plumless  ", "%", "' OR '1'='1", "ordering", "ordering::"} {
		assert.Empty(t, t.find(ids, admin.FindRequest{Term: term, By: admin.FindBys()}), term)
	}

	event := newRow("")
	second := newRow("")
	second.Type = "Ordering.OrderPlaced.v2"
	second.MessageID = eventid.Derive(event.MessageID, second.Type)
	stranger := newRow("")
	copy(stranger.MessageID[:9], event.MessageID[:9])
	ids = t.insert(event, second, stranger)
	both := []int{0, 1}
	if t.Store.Dialect() == outbox.SQLServer { // which orders ids by their last bytes
		both = both[:1]
	}
	assert.Equal(t, both, t.find(ids, admin.FindRequest{Term: event.MessageID.String()}))
	assert.Contains(t, t.find(ids, admin.FindRequest{Term: second.MessageID.String()}), 1)
	assert.Equal(t, []int{2}, t.find(ids, admin.FindRequest{Term: stranger.MessageID.String()}))
}

// Lists and searches within them select the same rows in the same order, page by page, which is what a naive reader finds. Each row has
// its key as the id of its aggregate and of its process, and its type as its tenant.
func testFindLists(t *table) {
	random := rand.New(rand.NewPCG(3, 4))
	rows := someRows(90, random)
	keys := []string{"ordering::k1", "billing::k1", "k1", "k2", "K1", "ordering::k1 "}
	for i := range rows {
		rows[i].key = keys[random.IntN(len(keys))]
	}
	t.write(rows)
	t.exec("UPDATE {t} SET aggregate_type = 'order', aggregate_id = ordering_key, correlation_id = ordering_key, tenant_id = type")
	selects := func(f *admin.Filter, row *browsed) bool {
		exact, prefix := f.TypePattern()
		return slices.Contains(f.Statuses, row.status) && (f.Broker == "" || f.Broker == row.broker) && (exact == "" || row.eventType == exact) && strings.HasPrefix(row.eventType, prefix) &&
			(f.Key == "" || row.key == f.Key || !strings.Contains(f.Key, "::") && strings.HasSuffix(row.key, "::"+f.Key)) &&
			slices.Contains([]string{"", row.key, "order-" + row.key, "order " + row.key}, f.Aggregate) && slices.Contains([]string{"", row.key}, f.Correlation) &&
			slices.Contains([]string{"", row.eventType}, f.Tenant) && slices.Contains([]string{"", row.class}, f.ErrorClass) &&
			(f.Since.IsZero() || !row.created.Before(f.Since)) && (f.Until.IsZero() || row.created.Before(f.Until))
	}
	rapid.Check(t.T, func(r *rapid.T) {
		draw := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(r, name) }
		f := admin.Filter{
			Broker: draw("broker", "", "", broker), Type: draw("type", "", "", "Shipped", "Ordering.*"), Key: draw("key", "", "", "k1", "ordering::k1", "K1", "k3"),
			Aggregate: draw("aggregate", "", "", "", "k1", "order-ordering::k1", "order k2"), Correlation: draw("correlation", "", "", "", "k1", "ordering::k1 "),
			Tenant: draw("tenant", "", "", "", "Shipped"), ErrorClass: draw("class", "", "", "", "retryable"),
			Statuses: rapid.SampledFrom([][]outbox.Status{outbox.Statuses(), outbox.Statuses(), {outbox.StatusAbandoned, outbox.StatusPending}}).Draw(r, "statuses"),
		}
		if rapid.Bool().Draw(r, "since") {
			f.Since = rows[len(rows)/4].created
		}
		var want []int64
		for _, name := range []string{"another", broker} {
			for _, status := range outbox.Statuses() {
				var kept []browsed
				for i := range rows {
					if rows[i].broker == name && selects(&f, &rows[i]) {
						kept = append(kept, rows[i])
					}
				}
				request := admin.ListRequest{Broker: name, Status: status, Limit: 7, Scan: 50}
				here := listed(kept, request)
				want = append(want, here...)
				if request.Filter = f; slices.Contains(f.Statuses, status) && (f.Broker == "" || f.Broker == name) {
					require.Equal(r, here, recordIDs(t.pages(request, nil)), "%s %s", name, status)
				}
			}
		}
		for by, term := range map[admin.FindBy]string{admin.ByType: f.Type, admin.ByKey: f.Key, admin.ByAggregate: f.Aggregate, admin.ByCorrelation: f.Correlation, admin.ByTenant: f.Tenant} {
			if term == "" || strings.HasSuffix(term, "*") {
				continue
			}
			found := []int64{}
			request := admin.FindRequest{Term: term, By: []admin.FindBy{by}, Filter: &f, Limit: rapid.IntRange(1, 9).Draw(r, "limit")}
			for range rows {
				page, err := t.Store.Find(t.Context(), request)
				require.NoError(r, err)
				require.LessOrEqual(r, len(page.Records), request.Limit)
				found = append(found, recordIDs(page.Records)...)
				if request.After = page.Next; page.Next == (admin.Position{}) {
					break
				}
			}
			require.Equal(r, append([]int64{}, want...), found, by)
		}
	})
}

// What cannot be a term is refused, and what was never written is not there.
func testFindRefused(t *table) {
	for _, bad := range []struct {
		request admin.FindRequest
		want    string
	}{
		{admin.FindRequest{Limit: 1}, "there is no term"},
		{admin.FindRequest{Term: strings.Repeat("x", admin.MaxTermBytes+1), Limit: 1}, "the term has 513 bytes"},
		{admin.FindRequest{Term: "a\x00b", Limit: 1}, "not valid UTF-8 without NUL"},
		{admin.FindRequest{Term: "a\xffb", Limit: 1}, "not valid UTF-8 without NUL"},
		{admin.FindRequest{Term: "x", By: []admin.FindBy{"colour"}, Limit: 1}, `"colour" is nothing that a term can name: use message, key,`},
		{admin.FindRequest{Term: "x"}, "the limit is 0"},
		{admin.FindRequest{Term: "x", Limit: 1, Filter: &admin.Filter{}}, "the rows of a message are no list"},
		{admin.FindRequest{Term: "x", By: []admin.FindBy{admin.ByKey}, Limit: 1, Filter: &admin.Filter{Tenant: "\x00"}}, "the tenant"},
	} {
		_, err := t.Store.Find(t.Context(), bad.request)
		require.ErrorContains(t, err, bad.want)
	}
	t.insert(newRow("k"))
	for _, term := range []string{uuid.NewString(), "k2", strings.Repeat("x", admin.MaxTermBytes), "00-zz-yy-01", time.Now().String()} {
		assert.Empty(t, t.find(nil, admin.FindRequest{Term: term, By: admin.FindBys()}), term)
	}
}
