package storetest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var operateTests = []test{
	{name: "RequeueEveryState", run: testRequeueStates},
	{name: "ReplayEveryState", run: testReplayStates},
	{name: "AbandonEveryState", run: testAbandonStates},
	{name: "LeaseIsOver", run: testOperateLeaseOver},
	{name: "TimeToLive", run: testRequeueTTL},
	{name: "Malformed", run: testRequeueMalformed},
	{name: "Reason", run: testAbandonReason},
	{name: "OldestFirst", run: testOperateOldestFirst},
	{name: "WrongArguments", run: testOperateWrong},
	{name: "Filters", run: testFilters},
	{name: "FiltersCombined", run: testFiltersCombined},
	{name: "FiltersOfSearches", run: testFiltersOfSearches},
	{name: "FilterByTime", run: testFilterByTime},
	{name: "RequeueBeforeABlockInTheWay", run: testRequeueBeforeActiveBlock},
	{name: "RequeueBehindABlock", run: testRequeueBehindBlock},
	{name: "SameMessageOfAnotherBroker", run: testSameMessage},
	{name: "DeferredReleaseAfterPurge", run: testDeferredReleasePurged},
	{name: "BlockedKeys", run: testBlockedKeys},
	{name: "ByHand", run: testByHand},
	{name: "EntriesByHand", run: testEntriesByHand},
	{name: "WhileClaimsRun", run: testOperateRace, concurrent: true, seconds: true},
	{name: "OfSeveralBrokersAtOnce", run: testOperateBrokersRace, concurrent: true, seconds: true},
	{name: "PurgedMeanwhile", run: testOperatePurgeRace, concurrent: true},
}

const many = 1000

func (t *table) requeue(filter admin.Filter) int {
	t.Helper()
	n, err := t.Store.Requeue(t.Context(), filter, many)
	require.NoError(t, err)
	return n
}

func (t *table) replay(filter admin.Filter) int {
	t.Helper()
	n, err := t.Store.Replay(t.Context(), filter, many)
	require.NoError(t, err)
	return n
}

func (t *table) abandon(filter admin.Filter) int {
	t.Helper()
	n, err := t.Store.Abandon(t.Context(), filter, "not wanted", many)
	require.NoError(t, err)
	return n
}

// these selects rows by their ids.
func (t *table) these(ids ...int64) admin.Filter {
	t.Helper()
	filter := admin.Filter{Broker: broker}
	for _, id := range ids {
		filter.MessageIDs = append(filter.MessageIDs, t.messageID(id))
	}
	return filter
}

func (t *table) messageID(id int64) string {
	t.Helper()
	var text string
	query := t.render("SELECT " + t.sql.text("message_id") + " FROM {t} WHERE id = ?")
	require.NoError(t, t.DB.QueryRowContext(t.Context(), query, id).Scan(&text))
	return text
}

// everyState writes one row in each state that the lifecycle knows, of a key of its own each.
func (t *table) everyState() map[string]int64 {
	t.Helper()
	k := t.keys(9)
	ids := t.add(k[:2]...)
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	t.expire(ids[1])
	rows := map[string]int64{"leased": ids[0], "expired": ids[1]}
	later, earlier := t.sql.minus("created_at", -lease), t.sql.minus("created_at", time.Minute) // no clock is so coarse
	const spent = ", attempts = 3, crashes = 2, last_error = '{\"class\":\"retryable\"}'"
	for i, state := range []struct{ name, set string }{
		{"ready", "status = 'pending'"},
		{"scheduled", "status = 'pending', available_at = " + later},
		{"outage", "status = 'pending', locked_until = " + later},
		{"failed", "status = 'failed', locked_until = " + later + spent},
		{"due", "status = 'failed', locked_until = " + earlier + spent},
		{"published", "status = 'published', published_at = " + earlier + ", finished_at = " + earlier + ", broker_message_id = 'theirs'" + spent},
		{"abandoned", "status = 'abandoned', finished_at = " + earlier + spent},
	} {
		rows[state.name] = t.add(k[2+i])[0]
		t.exec("UPDATE {t} SET "+state.set+" WHERE id = ?", rows[state.name])
	}
	return rows
}

// outline is a row without the exact times.
func (t *table) outline(id int64) state {
	t.Helper()
	s := t.state(id)
	for _, at := range []*time.Duration{&s.LockedFor, &s.PublishedAgo, &s.FinishedAgo} {
		if *at != 0 {
			*at = 1
		}
	}
	return s
}

func (t *table) outlines(rows map[string]int64) map[string]state {
	t.Helper()
	all := map[string]state{}
	for name, id := range rows {
		all[name] = t.outline(id)
	}
	return all
}

// checkStates compares all rows with what they were, but for those that an action has changed.
func (t *table) checkStates(rows map[string]int64, before, changed map[string]state) {
	t.Helper()
	for name, id := range rows {
		want, ok := changed[name]
		if !ok {
			want = before[name]
		}
		assert.Equal(t, want, t.outline(id), name)
	}
}

func testRequeueStates(t *table) {
	rows := t.everyState()
	before := t.outlines(rows)
	const why = `{"class":"retryable"}`
	assert.Equal(t, 6, t.requeue(admin.Filter{Broker: broker}))
	t.checkStates(rows, before, map[string]state{
		"expired": {Status: "pending"}, "scheduled": {Status: "pending"}, "outage": {Status: "pending"},
		"failed": {Status: "pending", LastError: why}, "due": {Status: "pending", LastError: why}, "abandoned": {Status: "pending", LastError: why},
	})
	assert.Zero(t, t.number("SELECT count(*) FROM {t} WHERE available_at IS NOT NULL OR isolated <> "+t.sql.no))
	assert.Zero(t, t.requeue(admin.Filter{Broker: broker}), "nothing is left")
	assert.Equal(t, []int64{rows["expired"], rows["ready"], rows["scheduled"], rows["outage"], rows["failed"], rows["due"], rows["abandoned"]},
		taken(t.claim()), "none is claimed in isolation any more")
}

func testReplayStates(t *table) {
	rows := t.everyState()
	before := t.outlines(rows)
	message := t.messageID(rows["published"])
	assert.Equal(t, 1, t.replay(admin.Filter{Broker: broker}))
	t.checkStates(rows, before, map[string]state{
		"published": {Status: "pending", LastError: `{"class":"retryable"}`, BrokerMessageID: "theirs"},
	})
	assert.Zero(t, t.replay(admin.Filter{Broker: broker}))
	t.expire(rows["expired"])
	require.Len(t, t.claim().Messages, 1) // in isolation
	batch := t.claim()
	require.Equal(t, []int64{rows["ready"], rows["published"]}, taken(batch), "one of the failed ones is claimed in isolation, too")
	assert.Equal(t, message, batch.Messages[1].MessageID)
	t.publish(batch)
	assert.Equal(t, state{Status: "published", Attempts: 1, LastError: `{"class":"retryable"}`, PublishedAgo: 1, FinishedAgo: 1},
		t.outline(rows["published"]))
}

func testAbandonStates(t *table) {
	rows := t.everyState()
	before := t.outlines(rows)
	assert.Equal(t, 6, t.abandon(admin.Filter{Broker: broker}))
	changed := map[string]state{}
	for _, name := range []string{"expired", "ready", "scheduled", "outage", "failed", "due"} {
		changed[name] = state{Status: "abandoned", FinishedAgo: 1, Attempts: before[name].Attempts, Crashes: before[name].Crashes, LastError: t.state(rows[name]).LastError}
		var last outbox.LastError
		require.NoError(t, json.Unmarshal([]byte(changed[name].LastError), &last), name)
		assert.WithinDuration(t, time.Now(), last.At, time.Minute)
		last.At = time.Time{}
		assert.Equal(t, outbox.LastError{Acknowledged: true, Class: admin.ClassOperator, Message: "not wanted", Attempt: before[name].Attempts}, last)
		assert.Less(t, t.state(rows[name]).FinishedAgo, time.Minute)
	}
	t.checkStates(rows, before, changed)
	assert.Zero(t, t.abandon(admin.Filter{Broker: broker}))
	assert.Equal(t, 6, t.requeue(admin.Filter{Broker: broker, ErrorClass: admin.ClassOperator}), "and back")
}

// The rows of a worker that has died need not wait for a relay to recover them; and should it live,
// it may write nothing down any more.
func testOperateLeaseOver(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[1], k[1])
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	processing := admin.Filter{Broker: broker, Statuses: []outbox.Status{outbox.StatusProcessing}}
	assert.Zero(t, t.requeue(processing), "it lives")
	assert.Zero(t, t.abandon(processing))
	t.expire(ids...)
	assert.Equal(t, 1, t.requeue(t.these(ids[0])))
	assert.Equal(t, 1, t.abandon(t.these(ids[2])))
	assert.Equal(t, "pending", t.state(ids[0]).Status)
	assert.Equal(t, "abandoned", t.state(ids[2]).Status)
	late := driver.Completion{Lease: batch.Lease, Published: []driver.Delivered{{ID: ids[0]}, {ID: ids[2]}}}
	assert.Equal(t, 2, t.complete(&late).Lost)
	assert.Equal(t, 2, t.requeue(processing))
	assert.Equal(t, []int64{ids[0], ids[1], ids[3]}, taken(t.claim()), "in their order, and none of them in isolation")
	assert.Equal(t, "abandoned", t.state(ids[2]).Status)
}

func testAbandonReason(t *table) {
	for _, reason := range []string{
		"", `quotes " ' \ and {"class":"permanent"}`, "schlüssel 鍵 🔑", "nul \x00 inside", "no utf-8: \xff", strings.Repeat("lang ✓ ", 5000), "$1 ? @p1 {{table}}",
	} {
		id := t.add("key")[0]
		n, err := t.Store.Abandon(t.Context(), t.these(id), reason, 1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		var last outbox.LastError
		require.NoError(t, json.Unmarshal([]byte(t.state(id).LastError), &last))
		assert.Equal(t, admin.ClassOperator, last.Class)
		if reason == "" {
			assert.NotEmpty(t, last.Message)
		} else {
			assert.Equal(t, reason[:4], last.Message[:4])
		}
		n, err = t.Store.Matches(t.Context(), admin.Filter{MessageIDs: t.these(id).MessageIDs, ErrorClass: "permanent"}, 1)
		require.NoError(t, err)
		assert.Zero(t, n, "a class is not to be found in a message")
	}
}

func testOperateOldestFirst(t *table) {
	k := t.keys(5)
	ids := t.add(k...)
	t.exec("UPDATE {t} SET created_at = " + t.sql.minus("created_at", -lease) + " WHERE id = (SELECT low FROM (SELECT min(id) AS low FROM {t}) AS first)") // ids count, not clocks
	operator := t.Store
	for _, action := range []struct {
		name      string
		into, out string
		run       func(limit int) (int, error)
	}{
		{"requeue", "status = 'failed', finished_at = NULL, published_at = NULL", "pending", func(limit int) (int, error) {
			return operator.Requeue(t.Context(), admin.Filter{Broker: broker}, limit)
		}},
		{"replay", "status = 'published', published_at = created_at, finished_at = created_at", "pending", func(limit int) (int, error) {
			return operator.Replay(t.Context(), admin.Filter{Broker: broker}, limit)
		}},
		{"abandon", "status = 'pending', finished_at = NULL, published_at = NULL", "abandoned", func(limit int) (int, error) {
			return operator.Abandon(t.Context(), admin.Filter{}, "because", limit)
		}},
		{"requeue what was abandoned", "priority = 0", "pending", func(limit int) (int, error) {
			return operator.Requeue(t.Context(), admin.Filter{}, limit)
		}},
	} {
		t.exec("UPDATE {t} SET " + action.into)
		for _, want := range []int{2, 2, 1, 0} {
			n, err := action.run(2)
			require.NoError(t, err, action.name)
			assert.Equal(t, want, n, action.name)
			done := t.ids("SELECT id FROM {t} WHERE status = ? ORDER BY id", action.out)
			assert.Equal(t, ids[:len(done)], done, action.name)
		}
		assert.Equal(t, 5, t.count(outbox.Status(action.out)))
	}
}
