package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	headRows  = 4000 // of a shard in which rows can be claimed, as overview.sql and list_processing.sql read them
	firstRows = 1000 // that are read where few are claimed, and for the rows that wait behind a blocked key
)

// browsed is a table with rows of each kind, written by hand; all of the broker b with the key k
// but where it is said.
func browsed(t *testing.T) *Store {
	t.Helper()
	store := openStore(t, testenv.Postgres(t), "browsed")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	return store
}

// put writes rows with the numbers first to last, which their message ids and types tell; SQL
// fragments for the rest.
func put(t *testing.T, store *Store, first, last int, columns, values string) {
	t.Helper()
	_, err := store.pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO browsed (id, message_id, stream, type, payload, target_broker, %s)
		SELECT i, lpad(to_hex(i), 32, '0')::uuid, 's', 'T.' || i, 'four', 'b', %s FROM generate_series(%d, %d) AS i`, columns, values, first, last))
	require.NoError(t, err)
}

// walk reads all pages of a list and returns the ids.
func walk(t *testing.T, store *Store, request admin.ListRequest) (ids []int64) {
	t.Helper()
	for range 1000 {
		list, err := store.List(t.Context(), request)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(list.Records), request.Limit)
		assert.LessOrEqual(t, list.Scanned, request.Scan)
		for i := range list.Records {
			assert.Equal(t, request.Status, list.Records[i].Status)
			ids = append(ids, list.Records[i].ID)
		}
		if list.Next == (admin.Position{}) {
			return ids
		}
		assert.NotEqual(t, request.After, list.Next, "a page leads on")
		request.After = list.Next
	}
	require.Fail(t, "the list never ends")
	return nil
}

func down(from, to int64) (ids []int64) {
	for id := from; id >= to; id-- {
		ids = append(ids, id)
	}
	return ids
}

const failedJSON = `'{"class":"retryable","message":"no","at":"2026-01-02T03:04:05.' || i || 'Z","attempt":1}'`

// TestListPages: each list has all its rows, newest first, with pages and looks of any size.
func TestListPages(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	put(t, store, 1, 40, "ordering_key", "'key-' || i % 7")                                               // pending
	put(t, store, 41, 50, "ordering_key, deferred", "'deferred', true")                                   // behind a block
	put(t, store, 101, 120, "status, lock_token, locked_until", "'processing', gen_random_uuid(), now()") // claimed
	put(t, store, 121, 130, "status, last_error, deferred, ordering_key", "'failed', "+failedJSON+", i % 2 = 0, 'f'")
	put(t, store, 131, 140, "last_error", failedJSON) // requeued
	put(t, store, 201, 230, "status, published_at, finished_at, priority", "'published', timestamptz '2026-01-01' + i / 10 * interval '1 second', now(), i % 3")
	put(t, store, 231, 250, "status, finished_at, last_error", "'abandoned', timestamptz '2026-01-01' + i / 7 * interval '1 second', "+failedJSON)
	for _, sizes := range [][2]int{{1, 1}, {2, 3}, {3, 7}, {10, 10}, {20, 100}, {1000, 1000}} {
		for name, c := range map[string]struct {
			request admin.ListRequest
			want    []int64
		}{
			"pending":           {admin.ListRequest{Status: outbox.StatusPending}, append(down(140, 131), down(50, 1)...)},
			"pending of a key":  {admin.ListRequest{Status: outbox.StatusPending, Filter: admin.Filter{Key: "key-3"}}, []int64{38, 31, 24, 17, 10, 3}},
			"deferred of a key": {admin.ListRequest{Status: outbox.StatusPending, Filter: admin.Filter{Key: "deferred"}}, down(50, 41)},
			"processing":        {admin.ListRequest{Status: outbox.StatusProcessing}, down(120, 101)},
			"failed":            {admin.ListRequest{Status: outbox.StatusFailed}, down(130, 121)},
			"failed of a key":   {admin.ListRequest{Status: outbox.StatusFailed, Filter: admin.Filter{Key: "f"}}, down(130, 121)},
			"failed of none":    {admin.ListRequest{Status: outbox.StatusFailed, Filter: admin.Filter{Key: "g"}}, nil},
			"published":         {admin.ListRequest{Status: outbox.StatusPublished}, down(230, 201)},
			"abandoned":         {admin.ListRequest{Status: outbox.StatusAbandoned}, down(250, 231)},
			"type":              {admin.ListRequest{Status: outbox.StatusPublished, Filter: admin.Filter{Type: "T.20*"}}, down(209, 201)},
			"deferred type":     {admin.ListRequest{Status: outbox.StatusPending, Filter: admin.Filter{Type: "T.4*"}}, append(down(49, 40), 4)},
			"one type":          {admin.ListRequest{Status: outbox.StatusPending, Filter: admin.Filter{Type: "T.20"}}, []int64{20}},
			"class":             {admin.ListRequest{Status: outbox.StatusAbandoned, Filter: admin.Filter{ErrorClass: "retryable"}}, down(250, 231)},
			"another class":     {admin.ListRequest{Status: outbox.StatusAbandoned, Filter: admin.Filter{ErrorClass: "permanent"}}, nil},
			"since":             {admin.ListRequest{Status: outbox.StatusPending, Filter: admin.Filter{Since: time.Now().Add(-time.Hour)}}, append(down(140, 131), down(50, 1)...)},
			"until":             {admin.ListRequest{Status: outbox.StatusPending, Filter: admin.Filter{Until: time.Now().Add(-time.Hour)}}, nil},
		} {
			c.request.Broker, c.request.Limit, c.request.Scan = "b", sizes[0], sizes[1]
			assert.Equal(t, c.want, walk(t, store, c.request), "%s, pages of %v", name, sizes)
		}
	}
	list, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: outbox.StatusFailed, Limit: 1, Scan: 100})
	require.NoError(t, err)
	got := list.Records[0]
	assert.Equal(t, 11, list.Scanned, "the ten rows that were requeued were looked at, too")
	assert.Equal(t, admin.Record{
		ID: 130, MessageID: uuid.UUID{15: 130}.String(), Broker: "b", Status: outbox.StatusFailed, State: outbox.StateStranded, Stream: "s", Type: "T.130", OrderingKey: "f",
		Shard: got.Shard, Deferred: true, ContentType: "application/json", CreatedAt: got.CreatedAt, PayloadBytes: 4,
		LastError: &outbox.LastError{Class: "retryable", Message: "no", At: time.Date(2026, 1, 2, 3, 4, 5, 130e6, time.UTC), Attempt: 1},
	}, got)
	assert.False(t, got.CreatedAt.IsZero())
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	for want, request := range map[string]admin.ListRequest{
		"name the broker":      {Status: outbox.StatusPending, Limit: 1, Scan: 1},
		"there is no status":   {Broker: "b", Limit: 1, Scan: 1},
		"the limit is 0":       {Broker: "b", Status: outbox.StatusPending, Scan: 1},
		"use at least as many": {Broker: "b", Status: outbox.StatusPending, Limit: 2, Scan: 1},
		"no text":              {Broker: "b", Status: outbox.StatusPending, Limit: 1, Scan: 1, Filter: admin.Filter{Key: "\x00"}},
		"nothing lies between": {Broker: "b", Status: outbox.StatusPending, Limit: 1, Scan: 1, Filter: admin.Filter{Since: time.Unix(1, 0), Until: time.Unix(1, 0)}},
	} {
		_, err := store.List(t.Context(), request)
		assert.ErrorContains(t, err, want)
	}
	_, err := store.Overview(t.Context(), 0)
	require.ErrorContains(t, err, "the limit is 0")
	_, err = store.Message(t.Context(), "1")
	require.ErrorContains(t, err, "no UUID")
	_, err = store.KeyBlocks(t.Context(), "", 0, 0)
	require.ErrorContains(t, err, "name the broker")
	require.ErrorContains(t, err, "the limit is 0")
	_, err = store.Audit(t.Context(), 0, 0)
	require.ErrorContains(t, err, "the limit is 0")
}

// TestOverviewCounts: exact where there are few rows, capped where there are more than asked for.
func TestOverviewCounts(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	put(t, store, 1, 5, "created_at", "now() - (6 - i) * interval '1 minute'")
	put(t, store, 6, 8, "deferred, ordering_key, created_at", "true, 'k', now() - interval '1 hour'")
	put(t, store, 9, 12, "status, lock_token, locked_until", "'processing', gen_random_uuid(), now() + interval '1 hour'")
	put(t, store, 13, 15, "status, last_error, deferred, locked_until", "'failed', "+failedJSON+", i = 13, now() + interval '1 hour'")
	put(t, store, 16, 17, "last_error", failedJSON)
	put(t, store, 18, 24, "status, published_at, finished_at", "'published', timestamptz '2026-01-01' + i * interval '1 second', now()")
	put(t, store, 25, 30, "status, finished_at, last_error", "'abandoned', now() - i * interval '1 second', CASE WHEN i < 30 THEN "+failedJSON+" END")
	_, err := store.pool.Exec(t.Context(), `INSERT INTO browsed (message_id, target_broker, stream, type, payload, status, published_at, finished_at)
		VALUES (gen_random_uuid(), 'a', 's', 't', '', 'published', '2026-01-01', now())`)
	require.NoError(t, err)
	overview, err := store.Overview(t.Context(), 100)
	require.NoError(t, err)
	require.Len(t, overview, 2)
	none := admin.Count{}
	assert.Equal(t, admin.BrokerOverview{
		Broker: "a", LastPublished: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Counts: map[outbox.Status]admin.Count{
			outbox.StatusPending: none, outbox.StatusProcessing: none, outbox.StatusFailed: none, outbox.StatusPublished: {N: 1}, outbox.StatusAbandoned: none,
		},
	}, overview[0])
	b := overview[1]
	assert.Equal(t, map[outbox.Status]admin.Count{
		outbox.StatusPending: {N: 10}, outbox.StatusProcessing: {N: 4}, outbox.StatusFailed: {N: 3}, outbox.StatusPublished: {N: 7}, outbox.StatusAbandoned: {N: 6},
	}, b.Counts)
	assert.Equal(t, admin.Count{N: 4}, b.Deferred)
	assert.InDelta(t, time.Hour, b.OldestPending, float64(time.Minute))
	assert.InDelta(t, 5*time.Minute, b.Lag, float64(time.Minute))
	assert.Equal(t, time.Date(2026, 1, 1, 0, 0, 24, 0, time.UTC), b.LastPublished)
	require.NotNil(t, b.LastError)
	assert.Equal(t, 290*time.Millisecond, time.Duration(b.LastError.At.Nanosecond()), "of row 29, in alphabetical order .29 is the last")

	overview, err = store.Overview(t.Context(), 3)
	require.NoError(t, err)
	capped := admin.Count{N: 3, More: true}
	assert.Equal(t, map[outbox.Status]admin.Count{
		outbox.StatusPending: capped, outbox.StatusProcessing: capped, outbox.StatusFailed: {N: 3}, outbox.StatusPublished: capped, outbox.StatusAbandoned: capped,
	}, overview[1].Counts)
	assert.Equal(t, capped, overview[1].Deferred)

	// Far more rows in another status than are looked at: what was not looked at may be more.
	put(t, store, 1001, 3100, "last_error", failedJSON)
	overview, err = store.Overview(t.Context(), 3)
	require.NoError(t, err)
	assert.Equal(t, admin.Count{N: 0, More: true}, overview[1].Counts[outbox.StatusFailed])
	assert.Equal(t, capped, overview[1].Counts[outbox.StatusPending])
}

func TestBlockedKeys(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	block := func(id int, key, wake, reason, since string) {
		_, err := store.pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO browsed_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason, since)
			SELECT target_broker, shard, ordering_key, id, message_id, %s, '%s', '%s' FROM browsed WHERE id = %d AND ordering_key = '%s'`, wake, reason, since, id, key))
		require.NoError(t, err)
	}
	put(t, store, 1, 1, "status, finished_at, last_error, ordering_key", "'abandoned', now(), "+failedJSON+", 'stopped'")
	put(t, store, 2, 4, "deferred, ordering_key", "true, 'stopped'")
	put(t, store, 5, 6, "ordering_key", "'stopped'")
	block(1, "stopped", "'infinity'", "operator", "2026-03-03")
	put(t, store, 11, 11, "status, last_error, deferred, ordering_key, locked_until", "'failed', "+failedJSON+", true, 'late', '2040-01-01Z'")
	block(11, "late", "'2040-01-01Z'", "backoff", "2026-02-02")
	put(t, store, 21, 21, "status, last_error, ordering_key, created_at, locked_until", "'failed', "+failedJSON+", 'failed', '2025-01-01', '2041-01-01Z'")
	put(t, store, 22, 40, "ordering_key, priority", "'failed', -(i % 2)") // of which those of another class wait for nothing
	put(t, store, 20, 20, "ordering_key", "'failed'")                     // before it: it waits for nothing
	put(t, store, 51, 51, "ordering_key", "'awake'")
	block(51, "awake", "NULL", "backoff", "2020-02-02")
	put(t, store, 61, 61, "ordering_key, deferred, available_at", "'scheduled', true, '2042-01-01Z'")
	block(61, "scheduled", "'2042-01-01Z'", "scheduled", "2026-04-04")
	put(t, store, 71, 71, "status, last_error", "'failed', "+failedJSON) // no key
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.DateOnly, text)
		require.NoError(t, err)
		return parsed
	}
	wrong := func(i int) *outbox.LastError {
		return &outbox.LastError{Class: "retryable", Message: "no", At: time.Date(2026, 1, 2, 3, 4, 5, map[int]int{1: 100e6, 11: 110e6, 21: 210e6}[i], time.UTC), Attempt: 1}
	}
	id := func(i byte) string { return uuid.UUID{15: i}.String() }
	want := []admin.KeyBlock{
		{Broker: "b", Key: "stopped", MessageID: id(1), Status: outbox.StatusAbandoned, Reason: "operator", Since: at("2026-03-03"), Followers: admin.Count{N: 5}, LastError: wrong(1)},
		{Broker: "b", Key: "failed", MessageID: id(21), Status: outbox.StatusFailed, Reason: "backoff", Since: wrong(21).At, Until: at("2041-01-01"), Followers: admin.Count{N: 10}, LastError: wrong(21)},
		{Broker: "b", Key: "late", MessageID: id(11), Status: outbox.StatusFailed, Reason: "backoff", Since: at("2026-02-02"), Until: at("2040-01-01"), LastError: wrong(11)},
		{Broker: "b", Key: "scheduled", MessageID: id(61), Status: outbox.StatusPending, Reason: "scheduled", Since: at("2026-04-04"), Until: at("2042-01-01")},
	}
	keys, err := store.KeyBlocks(t.Context(), "b", 10, 100)
	require.NoError(t, err)
	assert.Equal(t, want, keys.Keys)
	keys, err = store.KeyBlocks(t.Context(), "b", 2, 4)
	require.NoError(t, err)
	want[0].Followers, want[1].Followers = admin.Count{N: 4, More: true}, admin.Count{N: 4, More: true}
	assert.Equal(t, want[:2], keys.Keys)
	keys, err = store.KeyBlocks(t.Context(), "nobody", 2, 4)
	require.NoError(t, err)
	assert.Empty(t, keys)

	// A shard with more rows than are looked at.
	put(t, store, 1001, 1001+firstRows, "ordering_key", "'failed'")
	keys, err = store.KeyBlocks(t.Context(), "b", 10, 100000)
	require.NoError(t, err)
	assert.Equal(t, "failed", keys.Keys[1].Key)
	assert.True(t, keys.Keys[1].Followers.More)
	assert.InDelta(t, firstRows, keys.Keys[1].Followers.N, 40)
}

// TestListFindsHands: claimed rows are found at the head of a shard behind which a backlog stands,
// without reading the backlog.
func TestListFindsHands(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	put(t, store, 1, 3, "ordering_key, status, lock_token, locked_until", "'k', 'processing', gen_random_uuid(), now()")
	put(t, store, 4, 30000, "ordering_key", "'k'")
	list, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: outbox.StatusProcessing, Limit: 10, Scan: headRows + 10})
	require.NoError(t, err)
	assert.Len(t, list.Records, 3)
	assert.Zero(t, list.Next)
	assert.Equal(t, headRows+1, list.Scanned)
	overview, err := store.Overview(t.Context(), 100)
	require.NoError(t, err)
	assert.Equal(t, admin.Count{N: 3}, overview[0].Counts[outbox.StatusProcessing])
	// Claims have gone past rows that wait.
	_, err = store.pool.Exec(t.Context(), "UPDATE browsed SET locked_until = now() + interval '1 hour' WHERE id BETWEEN 4 AND $1", firstRows-10)
	require.NoError(t, err)
	_, err = store.pool.Exec(t.Context(), "UPDATE browsed SET status = 'processing', lock_token = gen_random_uuid(), locked_until = now() WHERE id = $1", headRows-10)
	require.NoError(t, err)
	overview, err = store.Overview(t.Context(), 100)
	require.NoError(t, err)
	assert.Equal(t, admin.Count{N: 4, More: true}, overview[0].Counts[outbox.StatusProcessing], "so far down there may be more")
}

// TestMessageRows: all rows of a message, with what they carry.
func TestMessageRows(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	id := uuid.New()
	for _, broker := range []string{"b", "a"} {
		_, err := store.pool.Exec(t.Context(), `INSERT INTO browsed (message_id, target_broker, stream, type, payload, headers, tenant_id, created_at, expires_at, last_error)
			VALUES ($1::text::uuid, $2, 's', 't', 'pay', '{"h":"v"}', 'tenant', '0001-01-01Z', '2040-01-01Z', 'no JSON')`, id.String(), broker)
		require.NoError(t, err)
	}
	records, err := store.Message(t.Context(), "{"+id.String()+"}") // another form of it
	require.NoError(t, err)
	require.Len(t, records, 2)
	assert.Equal(t, "a", records[0].Broker)
	assert.Equal(t, admin.Record{
		ID: records[1].ID, MessageID: id.String(), Broker: "b", Status: outbox.StatusPending, State: outbox.StateDue, Stream: "s", Type: "t", Shard: records[1].Shard,
		ContentType: "application/json", TenantID: "tenant", ExpiresAt: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC),
		PayloadBytes: 3, Payload: []byte("pay"), Headers: `{"h":"v"}`,
	}, records[1])
	records, err = store.Message(t.Context(), uuid.NewString())
	require.NoError(t, err)
	assert.Empty(t, records)
}

// TestLookSettings: whoever looks can change nothing, and does not wait forever.
func TestLookSettings(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	err := database{store}.Read(t.Context(), sqladmin.Browse, func(ctx context.Context, conn sqladmin.Conn) error {
		_, err := conn.ExecContext(ctx, store.Text("settings_browse"))
		require.NoError(t, err)
		assert.Equal(t, "5s", setting(t, conn, "statement_timeout"))
		_, err = conn.ExecContext(ctx, "DELETE FROM browsed")
		return err
	})
	require.ErrorContains(t, err, "read-only transaction")
}

// Two rows have one id where an identity has begun anew: each has its own state.
func TestStatesOfRepeatedIDs(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	_, err := store.pool.Exec(t.Context(), `INSERT INTO browsed (id, message_id, target_broker, stream, type, payload, available_at) OVERRIDING SYSTEM VALUE
		SELECT 7, md5(n::text)::uuid, 'b', 's', 't', 'p', CASE WHEN n = 1 THEN now() + interval '1 hour' END FROM generate_series(1, 3) AS n`)
	require.NoError(t, err)
	list, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: outbox.StatusPending, Limit: 10, Scan: 10})
	require.NoError(t, err)
	var states []outbox.State
	for i := range list.Records {
		states = append(states, list.Records[i].State)
	}
	assert.ElementsMatch(t, []outbox.State{outbox.StateDue, outbox.StateDue, outbox.StateScheduled}, states)
}
