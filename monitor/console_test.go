package monitor

import (
	"context"
	"errors"
	"slices"
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

func TestRequeueByFingerprint(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(700, failed("retryable", "timeout after %d ms")).add(30, failed("retryable", "no such topic %d"))
	fingerprint := Fingerprint("default", &outbox.LastError{Class: "retryable", Message: "no such topic 77"})
	console := consoleOf(store)
	action := Action{Verb: VerbRequeue, Fingerprint: fingerprint, DryRun: true}

	assert.Equal(t, Result{Database: "main", Matched: admin.Count{N: 30}}, do(t, console, action))
	assert.Empty(t, store.calls)
	assert.Empty(t, store.audit, "a dry run is no action")

	action.DryRun, action.Limit = false, 20
	assert.EqualValues(t, 20, do(t, console, action).Changed)
	assert.EqualValues(t, 701, store.changed[0])

	action.Limit, action.Filter.MessageIDs = 0, []string{store.rows[0].MessageID, store.rows[729].MessageID}
	result := do(t, console, action)
	assert.EqualValues(t, 1, result.Changed)
	assert.Equal(t, outbox.StatusFailed, store.rows[0].Status)
	assert.Equal(t, outbox.StatusPending, store.rows[729].Status)
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

func TestStatusKnowsPausesAndStrangers(t *testing.T) {
	t.Parallel()
	store := (&fake{pauses: []admin.Pause{{Broker: "partner", By: "bob"}}}).add(1, func(_ int, r *admin.Record) { r.Broker = "old" })
	brokers := consoleOf(store, WithBrokers("partner")).Status(t.Context(), 0)["main"].Brokers
	require.Len(t, brokers, 2)
	assert.True(t, brokers[0].Unknown, brokers[0].Broker)
	assert.Equal(t, "bob", brokers[1].Paused.By)
	assert.False(t, brokers[1].Unknown)
	assert.False(t, consoleOf(store).Status(t.Context(), 0)["main"].Brokers[0].Unknown, "nobody says what is known")
}

func TestOtherActions(t *testing.T) {
	t.Parallel()
	store := (&fake{deferred: []admin.BlockedKey{{Broker: "default", Key: "k"}}}).
		add(1100, func(i int, r *admin.Record) {
			r.Status, r.FinishedAt = outbox.StatusPublished, time.Now().Add(-2*time.Hour)
			if i%2 == 0 {
				r.Broker = "partner"
			}
		}).
		add(5, func(_ int, r *admin.Record) { r.Status, r.FinishedAt = outbox.StatusPublished, time.Now() }).
		add(5, func(_ int, r *admin.Record) {
			r.Status, r.FinishedAt = outbox.StatusAbandoned, time.Now().Add(-2*time.Hour)
		})
	console := consoleOf(store)
	broker := admin.Filter{Broker: "default"}

	for _, a := range []Action{
		{Verb: VerbPause, Filter: broker, Reason: "maintenance"}, {Verb: VerbResume, Filter: broker}, {Verb: VerbUnblock, Filter: broker, Key: "k"},
	} {
		dry := a
		dry.DryRun = true
		assert.EqualValues(t, 1, do(t, console, dry).Matched.N, a.Verb)
		assert.EqualValues(t, 1, do(t, console, a).Changed, a.Verb)
		assert.EqualValues(t, 0, do(t, console, dry).Matched.N, "%s again", a.Verb)
		assert.EqualValues(t, 0, do(t, console, a).Changed, "%s again", a.Verb)
	}

	purge := Action{Verb: VerbPurge, PublishedBefore: time.Hour, DryRun: true}
	assert.Equal(t, admin.Count{N: 1100}, do(t, console, purge).Matched)
	purge.DryRun, purge.Limit = false, 600
	assert.EqualValues(t, 600, do(t, console, purge).Changed)
	purge.Limit, purge.AbandonedBefore = 0, time.Hour
	assert.EqualValues(t, 505, do(t, console, purge).Changed)
	assert.Len(t, store.rows, 5)

	store.busy = true
	_, err := console.Do(t.Context(), operator, purge)
	require.ErrorIs(t, err, errBusy)
}

func TestAbandonAndHurry(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(800, func(i int, r *admin.Record) {
		if i%2 == 0 {
			r.AvailableAt = start.Add(time.Hour)
		}
	}).add(10, failed("retryable", "x %d"))
	console := consoleOf(store)
	assert.EqualValues(t, 10, do(t, console, Action{Verb: VerbRequeue}).Changed, "pending rows are hurried only on demand")
	assert.EqualValues(t, 400, do(t, console, Action{Verb: VerbRequeue, Filter: admin.Filter{Statuses: []outbox.Status{outbox.StatusPending}}}).Changed)
	store.rows[1].AvailableAt = start.Add(time.Hour)
	assert.EqualValues(t, 1, do(t, console, Action{Verb: VerbRequeue, Filter: admin.Filter{MessageIDs: []string{store.rows[1].MessageID}}}).Changed, "by its name")
	assert.EqualValues(t, 810, do(t, console, Action{Verb: VerbAbandon, Filter: admin.Filter{Broker: "default"}}).Changed)
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

func TestFailures(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(20, failed("retryable", "timeout after %d ms")).add(7, failed("permanent", "no such topic %d")).
		add(4, func(i int, r *admin.Record) {
			failed("permanent", "no such topic %d")(i, r)
			r.Status, r.OrderingKey = outbox.StatusAbandoned, []string{"k", "l"}[i%2]
		}).
		add(9, func(int, *admin.Record) {})
	found, err := consoleOf(store).Failures(t.Context(), "main", "")
	require.NoError(t, err)
	require.Len(t, found.Groups, 2)
	assert.Equal(t, 31, found.Scanned)
	assert.False(t, found.More)
	topic := found.Groups[1]
	assert.Len(t, topic.Sample, 5)
	topic.Sample = nil
	assert.Equal(t, FailureGroup{
		Fingerprint: Fingerprint("default", &outbox.LastError{Class: "permanent", Message: "no such topic 123456"}), Broker: "default",
		Class: "permanent", Message: "no such topic 3", Count: 11, ByStatus: map[outbox.Status]int{"failed": 7, "abandoned": 4},
		Types: map[string]int{"Ordering.Placed": 11}, FirstAt: store.rows[20].CreatedAt, LastAt: store.rows[30].CreatedAt, Keys: 2,
	}, topic)
}

func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(maxFailures+1, failed("retryable", "timeout after %d ms"))
	found, err := consoleOf(store).Failures(t.Context(), "main", "default")
	require.NoError(t, err)
	assert.Equal(t, maxFailures, found.Scanned)
	assert.True(t, found.More)
}

func TestBlockedWorkersAudit(t *testing.T) {
	t.Parallel()
	store := (&fake{blocked: []admin.KeyBlock{{Key: "k"}}, instances: []admin.Instance{{Name: "a"}}}).add(1, func(int, *admin.Record) {})
	console := consoleOf(store)
	blocked, err := console.Blocked(t.Context(), "main", "", 0)
	require.NoError(t, err)
	assert.Len(t, blocked.Keys, 1)
	_, err = console.Blocked(t.Context(), "main", "", MaxBlocked+1)
	require.ErrorContains(t, err, "blocked keys: the limit is 10001: use 1 to 10000")
	workers, err := console.Workers(t.Context(), "main")
	require.NoError(t, err)
	assert.Len(t, workers, 1)
	for range 3 {
		do(t, console, Action{Verb: VerbRequeue})
	}
	entries, err := console.Audit(t.Context(), "main", 3, 1)
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(entries, func(e admin.AuditEntry) bool { return e.ID == 2 }))
	_, err = console.Audit(t.Context(), "main", 0, 0)
	require.Error(t, err)
}
