package monitor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var operator = Actor{Name: "ann", Via: "go"}

func do(t *testing.T, c *Console, a Action) Result {
	t.Helper()
	results, err := c.Do(t.Context(), operator, a)
	require.NoError(t, err)
	require.Len(t, results, 1)
	return results[0]
}

// Rows that fail again at once must not be taken over and over: each is requeued once, oldest
// first, and all have their turn.
func TestRequeueTakesEachRowOnce(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(1200, failed("retryable", "timeout after %d ms"))
	store.after = func() {
		for i := range store.rows {
			store.rows[i].Status = outbox.StatusFailed
		}
	}
	var progress []Progress
	result := do(t, consoleOf(store), Action{Verb: VerbRequeue, Progress: func(p Progress) { progress = append(progress, p) }})

	assert.Equal(t, Result{Database: "main", Matched: admin.Count{N: 1200}, Changed: 1200, AuditID: 1}, result)
	want := make([]int64, 1200)
	for i := range want {
		want[i] = int64(i + 1)
	}
	assert.Equal(t, want, store.changed)
	assert.Equal(t, []Progress{
		{"main", admin.Count{N: 1200}, 500}, {"main", admin.Count{N: 1200}, 1000}, {"main", admin.Count{N: 1200}, 1200},
	}, progress)
	for _, call := range store.calls {
		assert.LessOrEqual(t, len(call.MessageIDs), 500)
	}
}

func TestActionsLeaveTheirMark(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(3, failed("permanent", "bad %d"))
	ctx, cancel := context.WithCancel(t.Context())
	store.after = cancel // the caller goes in the middle
	_, err := consoleOf(store).Do(ctx, operator, Action{Verb: VerbAbandon, Filter: admin.Filter{Broker: "default", Type: "Ordering.*"}, Reason: "ticket 7", Limit: 2})
	require.NoError(t, err)
	require.Len(t, store.audit, 1)
	entry := store.audit[0]
	assert.JSONEq(t, `{"type": "Ordering.*", "status": ["pending", "processing", "failed"], "limit": 2}`, entry.Filter)
	entry.Filter = ""
	assert.Equal(t, admin.AuditEntry{
		ID: 1, Actor: "ann", Via: "go", Action: "abandon", Broker: "default", Reason: "ticket 7", Rows: 2, StartedAt: start, EndedAt: start.Add(time.Second),
	}, entry)
	require.NoError(t, store.endCtx, "the end is recorded though the caller has gone")

	store.after = nil
	results, err := consoleOf(store).Do(ctx, operator, Action{Verb: VerbReplay, Filter: admin.Filter{Broker: "default"}})
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, results[0].Err, context.Canceled)
}

func TestNothingHappensUnrecorded(t *testing.T) {
	t.Parallel()
	store := (&fake{badAudit: errors.New("no such table")}).add(3, failed("permanent", "bad %d"))
	_, err := consoleOf(store).Do(t.Context(), operator, Action{Verb: VerbRequeue})
	require.ErrorContains(t, err, "nothing was changed")
	assert.Empty(t, store.calls)

	store.badAudit, store.endErr = nil, errors.New("gone")
	_, err = consoleOf(store).Do(t.Context(), operator, Action{Verb: VerbRequeue})
	require.ErrorContains(t, err, "could not be recorded")
	assert.Len(t, store.changed, 3)
}

func TestOneDatabaseDown(t *testing.T) {
	t.Parallel()
	well, ill := (&fake{}).add(3, failed("permanent", "bad %d")), &fake{down: errors.New("connection refused")}
	console := NewConsole(map[string]admin.Administration{"a": ill, "b": well}, WithBrokers("default", "idle"))
	results, err := console.Do(t.Context(), operator, Action{Verb: VerbRequeue})
	require.ErrorContains(t, err, `database "a"`)
	require.Len(t, results, 2)
	require.Error(t, results[0].Err)
	require.NoError(t, results[1].Err)
	assert.EqualValues(t, 3, results[1].Changed)

	status := console.Status(t.Context(), 2)
	require.ErrorContains(t, status["a"].Err, "connection refused")
	require.NoError(t, status["b"].Err)
	assert.Equal(t, admin.Count{N: 2, More: true}, status["b"].Counts[outbox.StatusPending])
	assert.Equal(t, "idle", status["b"].Brokers[1].Broker)
	assert.False(t, status["b"].Brokers[1].Unknown)
}

func TestRefusedActions(t *testing.T) {
	t.Parallel()
	console := consoleOf(&fake{}, WithBrokers("default"))
	for name, test := range map[string]struct {
		action Action
		want   string
	}{
		"verb":            {Action{Verb: "drop"}, `there is no action "drop"`},
		"database":        {Action{Verb: VerbRequeue, Database: "x"}, `there is no database "x"`},
		"everything":      {Action{Verb: VerbAbandon}, "every row"},
		"replay all":      {Action{Verb: VerbReplay, Filter: admin.Filter{Statuses: []outbox.Status{"published"}}}, "every row"},
		"status":          {Action{Verb: VerbRequeue, Filter: admin.Filter{Statuses: []outbox.Status{"published"}}}, "published"},
		"id":              {Action{Verb: VerbRequeue, Filter: admin.Filter{MessageIDs: []string{"7"}}}, "no UUID"},
		"fingerprint":     {Action{Verb: VerbRequeue, Fingerprint: "zz"}, "12 hexadecimal"},
		"fingerprint for": {Action{Verb: VerbReplay, Fingerprint: "0123456789ab"}, "failures: messages to be requeued"},
		"pause whom":      {Action{Verb: VerbPause}, "name the broker"},
		"pause a stray":   {Action{Verb: VerbPause, Filter: admin.Filter{Broker: "x"}}, `no broker "x"`},
		"pause more":      {Action{Verb: VerbPause, Filter: admin.Filter{Broker: "default", Type: "T"}}, "takes no other condition"},
		"key":             {Action{Verb: VerbUnblock, Filter: admin.Filter{Broker: "default"}}, "ordering key"},
		"purge":           {Action{Verb: VerbPurge}, "how long ago"},
		"age":             {Action{Verb: VerbRequeue, PublishedBefore: time.Hour}, "is for purge"},
		"limit":           {Action{Verb: VerbRequeue, Limit: -1}, "positive"},
		"text":            {Action{Verb: VerbRequeue, Reason: "a\x00b"}, "no text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, err := console.Do(t.Context(), operator, test.action)
			require.ErrorContains(t, err, test.want)
			assert.Empty(t, results)
		})
	}
}

// Pages of any size hold every row that matches, once, within each broker and status newest first.
func TestMessagesPages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		store := &fake{}
		store.add(rapid.IntRange(0, 60).Draw(rt, "rows"), func(_ int, r *admin.Record) {
			r.Broker = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "broker")
			r.Status = rapid.SampledFrom(outbox.Statuses()).Draw(rt, "status")
			r.Type = rapid.SampledFrom([]string{"T.A", "T.B", "U"}).Draw(rt, "type")
			if r.Status.Terminal() {
				r.FinishedAt = start.Add(time.Duration(rapid.IntRange(0, 5).Draw(rt, "finished")) * time.Microsecond)
			}
		})
		query := MessagesQuery{
			Filter: admin.Filter{
				Broker: rapid.SampledFrom([]string{"", "b"}).Draw(rt, "of"), Type: rapid.SampledFrom([]string{"", "T.*"}).Draw(rt, "type"),
				Statuses: rapid.SliceOfDistinct(rapid.SampledFrom(outbox.Statuses()), rapid.ID).Draw(rt, "statuses"),
			},
			Limit: rapid.IntRange(1, 9).Draw(rt, "limit"),
		}
		var got []int64
		for range 200 {
			page, err := consoleOf(store).Messages(t.Context(), "main", query)
			require.NoError(rt, err)
			require.LessOrEqual(rt, len(page.Records), query.Limit)
			for i := range page.Records {
				got = append(got, page.Records[i].ID)
			}
			if query.Cursor = page.Next; page.Next == "" {
				break
			}
		}
		var want []int64
		filter := query.Filter
		for i := range store.rows {
			if matches(&store.rows[i], &filter) {
				want = append(want, store.rows[i].ID)
			}
		}
		require.Empty(rt, query.Cursor)
		require.ElementsMatch(rt, want, got)
	})
}

// A search that takes too long is tried once: from there on the list looks at one row after the other, and loses none.
func TestMessagesWithoutASearch(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(3*scanPage, func(i int, r *admin.Record) {
		if i%(scanPage-1) == 0 {
			r.Type = "Ordering.Refunded"
		}
	})
	store.slow = true
	query := MessagesQuery{Filter: admin.Filter{Type: "Ordering.Refunded"}}
	var found, scanned int
	for range 9 {
		page, err := consoleOf(store).Messages(t.Context(), "main", query)
		require.NoError(t, err)
		require.LessOrEqual(t, page.Scanned, scanPage)
		found, scanned = found+len(page.Records), scanned+page.Scanned
		if query.Cursor = page.Next; page.Next == "" {
			break
		}
		assert.Equal(t, "default", page.Reached.Broker)
	}
	assert.Empty(t, query.Cursor)
	assert.Equal(t, 4, found)
	assert.Equal(t, 3*scanPage, scanned)
	assert.Equal(t, 1, store.searched)
	_, err := consoleOf(store).Messages(t.Context(), "main", MessagesQuery{Trace: "4bf92f3577b34da6a3ce929d0e0e4736"})
	require.ErrorIs(t, err, context.DeadlineExceeded, "which no list shows")
}

func TestMessagesRefuses(t *testing.T) {
	t.Parallel()
	console := consoleOf((&fake{}).add(3, func(int, *admin.Record) {}))
	page, err := console.Messages(t.Context(), "main", MessagesQuery{Limit: 1})
	require.NoError(t, err)
	require.NotEmpty(t, page.Next)
	for _, query := range []MessagesQuery{
		{Limit: -1},
		{Limit: MaxPage + 1},
		{Cursor: "x"},
		{Cursor: page.Next, Filter: admin.Filter{Broker: "other"}},
		{Filter: admin.Filter{Statuses: []outbox.Status{"done"}}},
		{Cursor: page.Next, Filter: admin.Filter{Statuses: []outbox.Status{"failed"}}},
	} {
		var refused *RefusedError
		_, err := console.Messages(t.Context(), "main", query)
		require.ErrorAs(t, err, &refused, "%+v", query)
	}
	var missing *NotFoundError
	_, err = console.Messages(t.Context(), "other", MessagesQuery{})
	require.ErrorAs(t, err, &missing)
	var refused *RefusedError
	_, err = console.Message(t.Context(), "main", "7")
	require.ErrorAs(t, err, &refused)
}

func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(maxFailures+1, failed("retryable", "timeout after %d ms"))
	found, err := consoleOf(store).Failures(t.Context(), "main", "default")
	require.NoError(t, err)
	assert.Equal(t, maxFailures, found.Scanned)
	assert.True(t, found.More)
}

// Two purges of one table do not run at a time.
func TestPurgeBesideAnother(t *testing.T) {
	t.Parallel()
	store := &fake{busy: true}
	_, err := consoleOf(store).Do(t.Context(), operator, Action{Verb: VerbPurge, PublishedBefore: time.Hour})
	require.ErrorIs(t, err, errBusy)
}
