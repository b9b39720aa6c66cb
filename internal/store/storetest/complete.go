package storetest

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var completeTests = []test{
	{name: "Published", run: testPublished},
	{name: "Retry", run: testRetry},
	{name: "Abandoned", run: testAbandoned},
	{name: "Released", run: testReleased},
	{name: "ErrorTexts", run: testErrorTexts},
	{name: "WrongToken", run: testWrongToken},
	{name: "Reclaimed", run: testReclaimed},
	{name: "NeverOverPublished", run: testNeverOverPublished},
	{name: "Twice", run: testTwice},
	{name: "StandsWhenTheClaimFails", run: testStands},
	{name: "OtherShard", run: testOtherShard},
}

func testPublished(t *table) {
	ids := t.add(t.keys(2)...)
	batch := t.claim()
	s := published(batch)
	s.Published[0].BrokerMessageID = "1700000000000-0"
	require.Zero(t, t.complete(s).Lost)
	for n, id := range ids {
		got := t.state(id)
		assert.Less(t, got.PublishedAgo, time.Minute)
		assert.Equal(t, got.PublishedAgo.Truncate(time.Minute), got.FinishedAgo.Truncate(time.Minute))
		assert.NotZero(t, got.PublishedAgo)
		assert.NotZero(t, got.FinishedAgo)
		got.PublishedAgo, got.FinishedAgo = 0, 0
		assert.Equal(t, state{Status: "published", Attempts: 1, BrokerMessageID: []string{"1700000000000-0", ""}[n]}, got)
	}
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t} WHERE broker_message_id IS NULL"), "a broker that gives no id")
}

func testRetry(t *table) {
	ids := t.add(t.keys(2)...)
	batch := t.claim()
	s := &driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{
		{ID: ids[0], Status: outbox.StatusFailed, Spent: true, Delay: time.Minute, LastError: `{"class":"retryable"}`},
		{ID: ids[1], Status: outbox.StatusFailed, Spent: true, LastError: `{"class":"retryable"}`},
	}}
	require.Zero(t, t.complete(s).Lost)
	got := t.state(ids[0])
	assert.InDelta(t, time.Minute.Seconds(), got.LockedFor.Seconds(), 30)
	got.LockedFor = 0
	assert.Equal(t, state{Status: "failed", Attempts: 1, LastError: `{"class":"retryable"}`}, got)

	batch = t.claim()
	require.Equal(t, ids[1:], taken(batch), "without a delay it is ready at once")
	assert.Equal(t, 1, batch.Messages[0].Attempts)
	assert.Zero(t, batch.Messages[0].Crashes)
	t.age(ids[0], "locked_until", 2*time.Minute)
	batch = t.claim()
	require.Equal(t, ids[:1], taken(batch))
	t.publish(batch)
	got = t.state(ids[0])
	assert.Equal(t, 2, got.Attempts)
	assert.NotEmpty(t, got.LastError, "what went wrong before is not forgotten")
}

func testAbandoned(t *table) {
	ids := t.add(t.keys(2)...)
	batch := t.claim()
	s := &driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{
		{ID: ids[0], Status: outbox.StatusAbandoned, Spent: true, LastError: `{"class":"permanent"}`},
		{ID: ids[1], Status: outbox.StatusAbandoned, LastError: `{"class":"expired"}`},
	}}
	require.Zero(t, t.complete(s).Lost)
	for n, id := range ids {
		got := t.state(id)
		assert.NotZero(t, got.FinishedAgo)
		assert.Less(t, got.FinishedAgo, time.Minute)
		got.FinishedAgo = 0
		assert.Equal(t, state{Status: "abandoned", Attempts: 1 - n, LastError: s.Other[n].LastError}, got)
	}
}

func testReleased(t *table) {
	ids := t.add(t.keys(3)...)
	t.exec("UPDATE {t} SET status = 'failed', attempts = 2, last_error = 'before' WHERE id = ?", ids[1])
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	require.Zero(t, t.complete(&driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{
		{ID: ids[0], Status: outbox.StatusPending},
		{ID: ids[1], Status: outbox.StatusFailed},
		{ID: ids[2], Status: outbox.StatusPending, Delay: time.Minute, LastError: "unavailable"},
	}}).Lost)
	assert.Equal(t, state{Status: "pending"}, t.state(ids[0]))
	assert.Equal(t, state{Status: "failed", Attempts: 2, LastError: "before"}, t.state(ids[1]))
	got := t.state(ids[2])
	assert.InDelta(t, time.Minute.Seconds(), got.LockedFor.Seconds(), 30)
	got.LockedFor = 0
	assert.Equal(t, state{Status: "pending", LastError: "unavailable"}, got)
	assert.Equal(t, ids[:2], taken(t.claim()))
}

// Whatever a broker answers must be possible to write down: a completion that the database refuses
// would have its messages sent forever.
func testErrorTexts(t *table) {
	texts := []string{
		`{"message":"schlüssel 鍵 🔑 '' \\ \" \u0000"}`, "nul \x00 inside", "no utf-8: \xff\xfe", strings.Repeat("lang ✓ ", 1800),
		"$1 ? @p1 {{table}} -- ; DROP TABLE x", "\u2028\r\n\t", "\ufeff\U0010ffff",
	}
	short := func(text string) string { return text[:min(len(text), 504)] } // of a broker's ids there is less
	ids := t.addLoose(2 * len(texts))
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	s := &driver.Completion{Lease: batch.Lease}
	for n, text := range texts {
		s.Other = append(s.Other, driver.Outcome{ID: ids[n], Status: outbox.StatusFailed, Spent: true, Delay: time.Hour, LastError: text})
		s.Published = append(s.Published, driver.Delivered{ID: ids[len(texts)+n], BrokerMessageID: short(text)})
	}
	require.Zero(t, t.complete(s).Lost)
	for n, text := range texts {
		stored := func(text string) string {
			return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
		}
		assert.Equal(t, stored(text), t.state(ids[n]).LastError)
		assert.Equal(t, stored(short(text)), t.state(ids[len(texts)+n]).BrokerMessageID)
	}
}

func testWrongToken(t *table) {
	ids := t.add(t.keys(2)...)
	batch := t.claim()
	before := []state{t.state(ids[0]), t.state(ids[1])}
	s := retryLater(batch, ids[1])
	s.Lease.Token = uuid.New()
	assert.Equal(t, 2, t.complete(s).Lost)
	for n, id := range ids {
		got := t.state(id)
		got.LockedFor = before[n].LockedFor
		assert.Equal(t, before[n], got)
	}
	t.publish(batch)
}

// The late word of an owner whose lease was taken over changes nothing: the new owner's state
// stands.
func testReclaimed(t *table) {
	ids := t.add(t.keys(1)...)
	late := t.claim()
	t.expire(ids...)
	owner := t.claimBy(t.another())
	require.Equal(t, ids, taken(owner))
	before := t.state(ids[0])
	assert.Equal(t, 1, t.complete(published(late)).Lost)
	assert.Equal(t, 1, t.complete(retryLater(late, ids...)).Lost)
	after := t.state(ids[0])
	after.LockedFor = before.LockedFor
	assert.Equal(t, before, after)
	t.publish(owner)
}

func testNeverOverPublished(t *table) {
	ids := t.add(t.keys(1)...)
	late := t.claim()
	t.expire(ids...)
	t.publish(t.claimBy(t.another()))
	for _, o := range []driver.Outcome{
		{Status: outbox.StatusFailed, Spent: true}, {Status: outbox.StatusAbandoned}, {Status: outbox.StatusPending},
	} {
		assert.Equal(t, 1, t.complete(outcome(late, o)).Lost)
	}
	got := t.state(ids[0])
	assert.Equal(t, "published", got.Status)
	assert.Equal(t, 2, got.Attempts, "the crash of a row that was alone, and the one that went well")
}

// A completion whose answer was lost is sent again.
func testTwice(t *table) {
	ids := t.add(t.keys(2)...)
	s := retryLater(t.claim(), ids[1])
	require.Zero(t, t.complete(s).Lost)
	before := []state{t.state(ids[0]), t.state(ids[1])}
	assert.Equal(t, 2, t.complete(s).Lost)
	for n, id := range ids {
		assert.Equal(t, before[n].Attempts, t.state(id).Attempts)
		assert.Equal(t, before[n].Status, t.state(id).Status)
	}
}

// A completion is durable on its own.
func testStands(t *table) {
	for _, statement := range t.sql.refuseWorker {
		t.exec(statement)
	}
	refused := func(c *driver.Claim) { c.Worker = "refused" }
	for _, isUnordered := range []bool{false, true} {
		k := t.keys(3)
		ids := t.add(k[0], k[1])
		change := func(c *driver.Claim) { c.Unordered = isUnordered }
		first, second := t.claim(limit(1), change), t.claim(limit(1), change)
		t.add(k[2])
		for i, completion := range []*driver.Completion{published(first), retryLater(second, ids[1])} {
			result, err := t.Store.Exchange(t.Context(), completion, t.request(refused, change))
			require.ErrorContains(t, err, "refused by the test")
			require.NotNil(t, result.Completed, "the caller can tell that the completion stands")
			assert.Zero(t, result.Completed.Lost)
			assert.Empty(t, result.Batch.Messages)
			assert.Equal(t, []string{"published", "failed"}[i], t.state(ids[i]).Status)
		}
		batch := t.claim(change)
		assert.Len(t, batch.Messages, 1, "and nothing is left behind that blocks a claim")
		t.publish(batch)
	}
}

// Nothing says that the next claim is made from the shard of the completion.
func testOtherShard(t *table) {
	if t.Store.Shards() == 1 {
		t.Skip("there is one shard")
	}
	ids := t.add(t.keys(2)...)
	batch := t.claim()
	other := (t.shard + 1) % t.Store.Shards()
	result, err := t.Store.Exchange(t.Context(), retryLater(batch, ids[1]), t.request(func(c *driver.Claim) { c.Shard = other }))
	require.NoError(t, err)
	require.NotNil(t, result.Completed)
	assert.Zero(t, result.Completed.Lost)
	assert.Equal(t, other, result.Batch.Lease.Shard)
}
