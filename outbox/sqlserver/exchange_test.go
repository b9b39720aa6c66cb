package sqlserver

import (
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

var (
	testLease      = driver.Lease{Broker: "partner", Shard: 2, Token: uuid.MustParse("0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b"), FirstID: 1, LastID: 9}
	testClaim      = &driver.Claim{Broker: "partner", Shard: 3, Limit: 10, Bytes: 1 << 20, Window: 20, Lease: 90 * time.Second, Worker: "w"}
	testCompletion = &driver.Completion{
		Lease:     testLease,
		Published: []driver.Delivered{{ID: 1, BrokerMessageID: "17-0"}, {ID: 3}},
		Other:     []driver.Outcome{{ID: 2, Status: outbox.StatusFailed, Spent: true, Delay: time.Minute, LastError: "{}"}},
	}
	published2 = count("fanout_published", 2)
	other1     = count("fanout_other", 1)
	foreign    = set{columns: []string{"id"}, rows: [][]sqldriver.Value{{int64(7)}, {int64(8)}}} // a trigger of the application's
)

func claimed(busy bool, seen int64) set {
	return set{
		columns: []string{"fanout_busy", "seen", "cut", "waiting", "blocked", "ahead_waits"},
		rows:    [][]sqldriver.Value{{busy, seen, false, int64(0), false, false}},
	}
}

var created = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func messages(ids ...int64) set {
	s := set{columns: []string{
		"fanout_id", "message_id", "stream", "type", "ordering_key", "priority", "content_type", "headers",
		"correlation_id", "attempts", "crashes", "created_at", "expired", "payload",
	}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{
			id, "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b", "ordering::order", "T.v1", "k", int64(-3), "application/json", `{"a":"b"}`,
			"c", int64(1), int64(2), created, true, []byte("{}"),
		})
	}
	return s
}

func TestExchangeIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(reply{
		sets: []set{foreign, published2, foreign, other1, foreign, claimed(false, 17), messages(4, 5)},
	}))
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	require.NoError(t, err)
	assert.Equal(t, &driver.Completed{}, result.Completed)

	token := result.Batch.Lease.Token
	assert.NotEqual(t, uuid.Nil, token)
	assert.Equal(t, driver.Lease{Broker: "partner", Shard: 3, Token: token, FirstID: 4, LastID: 5, Duration: 90 * time.Second}, result.Batch.Lease)
	assert.Equal(t, 17, result.Batch.Seen)
	assert.False(t, result.Batch.Busy)
	require.Len(t, result.Batch.Messages, 2)
	assert.Equal(t, driver.Message{
		ID: 4, MessageID: "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b", Stream: "ordering::order", Type: "T.v1", OrderingKey: "k", Priority: -3,
		ContentType: "application/json", Headers: `{"a":"b"}`, CorrelationID: "c", Attempts: 1, Crashes: 2, CreatedAt: created,
		Expired: true, Payload: []byte("{}"),
	}, result.Batch.Messages[0])

	require.Len(t, server.requests, 1)
	assert.Equal(t, store.sql.exchange[parts{true, true, orderedClaim, false}], server.requests[0].text)
	assert.Equal(t, map[string]any{
		"completed_token": testLease.Token.String(),
		"published":       mssql.NVarCharMax(`[{"i":1,"b":"17-0"},{"i":3}]`),
		"other":           mssql.NVarCharMax(`[{"i":2,"s":"failed","a":1,"d":60,"u":0,"e":"{}"}]`),
		"completed_lock":  store.shardLock("partner", 2), "block_abandoned": false,
		"claim_lock": store.shardLock("partner", 3),
		"broker":     "partner", "shard": int32(3), "window": int64(20), "limit": int64(10), "bytes": int64(1 << 20), "shared": false,
		"worker": mssql.NVarCharMax("w"), "token": token.String(), "lease_seconds": int32(90), "lease_micros": int32(0),
	}, server.requests[0].args)
}

func TestExchangeWithoutWork(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn())
	result, err := store.Exchange(t.Context(), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, driver.Exchanged{}, result)
	result, err = store.Exchange(t.Context(), &driver.Completion{}, nil)
	require.NoError(t, err)
	assert.Equal(t, driver.Exchanged{Completed: &driver.Completed{}}, result)
	assert.Empty(t, server.requests)
}

func TestExchangeBusy(t *testing.T) {
	t.Parallel()
	store, _ := newFake(t, "outbox_messages", inTurn(reply{sets: []set{claimed(true, 0), messages()}}))
	result, err := store.Exchange(t.Context(), nil, testClaim)
	require.NoError(t, err)
	assert.True(t, result.Batch.Busy)
	assert.Nil(t, result.Completed)
	assert.Equal(t, 3, result.Batch.Lease.Shard)
}

func TestExchangeLost(t *testing.T) {
	t.Parallel()
	store, _ := newFake(t, "outbox_messages", inTurn(reply{sets: []set{count("fanout_published", 1), count("fanout_other", 0)}}))
	result, err := store.Exchange(t.Context(), testCompletion, nil)
	require.NoError(t, err)
	assert.Equal(t, &driver.Completed{Lost: 2}, result.Completed)
}

// What is completed stands, and is known to stand, when the claim behind it fails.
func TestExchangeCompletionStands(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(reply{sets: []set{published2, other1}, err: serverError(50000)}))
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	require.ErrorContains(t, err, "sqlserver: claim and complete in outbox_messages: ")
	assert.Equal(t, driver.Exchanged{Completed: &driver.Completed{}}, result)
	assert.Len(t, server.requests, 1, "an error that is nobody's turn is not repeated")
}

// Half a completion is none: the caller sends all of it again.
func TestExchangeHalfCompleted(t *testing.T) {
	t.Parallel()
	store, _ := newFake(t, "outbox_messages", inTurn(reply{sets: []set{published2}, err: serverError(547)}))
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	require.Error(t, err)
	assert.Equal(t, driver.Exchanged{}, result)
}

// After a deadlock only that is repeated which the server has not confirmed, so that what the first try marked does not
// look lost.
func TestExchangeRepeatsWhatIsLeft(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(1222)},
		reply{sets: []set{published2}, err: serverError(1205)},
		reply{sets: []set{other1, claimed(false, 1), messages(4)}},
	))
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	require.NoError(t, err)
	assert.Equal(t, &driver.Completed{}, result.Completed)
	assert.Len(t, result.Batch.Messages, 1)
	all := store.sql.exchange
	assert.Equal(t, []string{
		all[parts{true, true, orderedClaim, false}], all[parts{true, true, orderedClaim, false}], all[parts{false, true, orderedClaim, false}],
	}, server.texts())
}

// A claim whose answer broke off is made anew, under a token of its own and without what came of the first.
func TestExchangeClaimsAnew(t *testing.T) {
	t.Parallel()
	unordered := *testClaim
	unordered.Unordered = true
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{sets: []set{claimed(false, 2), messages(4)}, err: serverError(1205)},
		reply{sets: []set{claimed(false, 1), messages(6)}},
	))
	result, err := store.Exchange(t.Context(), nil, &unordered)
	require.NoError(t, err)
	require.Len(t, result.Batch.Messages, 1)
	assert.EqualValues(t, 6, result.Batch.Messages[0].ID)
	assert.Equal(t, 1, result.Batch.Seen)
	assert.NotEqual(t, server.requests[0].args["token"], server.requests[1].args["token"])
	assert.Equal(t, result.Batch.Lease.Token.String(), server.requests[1].args["token"])
	assert.NotContains(t, server.requests[0].args, "claim_lock")
}

// A row that somebody changed by hand while it was being claimed is no reason to give up, nor to take what is behind it.
func TestExchangeRowChanged(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{sets: []set{published2, other1}, err: serverError(errRowChanged)},
		reply{sets: []set{claimed(false, 1), messages(4)}},
	))
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	require.NoError(t, err)
	assert.Equal(t, &driver.Completed{}, result.Completed)
	assert.Len(t, result.Batch.Messages, 1)
	assert.Equal(t, store.sql.exchange[parts{claim: orderedClaim}], server.texts()[1])
}

// What waits behind the claimed rows, and how deferred rows are asked for.
func TestExchangeWithBlocks(t *testing.T) {
	t.Parallel()
	answer := claimed(false, 17)
	answer.rows[0] = []sqldriver.Value{false, int64(17), true, int64(5), true, true}
	for _, kind := range []claimKind{orderedClaim, unorderedClaim} {
		store, server := newFake(t, "outbox_messages", inTurn(reply{sets: []set{other1, answer, messages()}}))
		claim := *testClaim
		claim.Shard, claim.Wake, claim.Unordered = 6, true, kind == unorderedClaim
		completion := &driver.Completion{Lease: testLease, Other: testCompletion.Other, BlockAbandoned: true}
		completion.Lease.Shard = 10
		result, err := store.Exchange(t.Context(), completion, &claim)
		require.NoError(t, err)
		assert.Equal(t, driver.Batch{
			Lease: driver.Lease{Broker: "partner", Shard: 6, Token: result.Batch.Lease.Token, Duration: 90 * time.Second},
			Seen:  17, Cut: true, Waiting: 5, Blocked: true, AheadWaits: true,
		}, result.Batch)
		assert.Equal(t, store.sql.exchange[parts{other: true, claim: kind, wake: true}], server.requests[0].text)
		args := server.requests[0].args
		assert.Equal(t, true, args["block_abandoned"])
		assert.Equal(t, int32(6), args["shard"])
		assert.Equal(t, store.shardLock("partner", 2), args["claim_lock"], "the shards of the same keys share their lock")
		assert.Equal(t, store.shardLock("partner", 2), args["completed_lock"])
	}
}

func TestDefer(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(errLockNotGranted)}, reply{sets: []set{count("fanout_deferred", 400)}}, reply{}, reply{err: serverError(208)},
	))
	claim := &driver.Claim{Broker: "partner", Shard: 5, Window: 4000, Unordered: true}
	deferred, err := store.Defer(t.Context(), claim)
	require.NoError(t, err)
	assert.Equal(t, 400, deferred)
	assert.Equal(t, map[string]any{
		"broker": "partner", "shard": int32(5), "claim_lock": store.shardLock("partner", 1), "window": int64(4000), "unordered": true,
	}, server.requests[1].args)
	_, err = store.Defer(t.Context(), claim)
	require.ErrorIs(t, err, errIncomplete)
	_, err = store.Defer(t.Context(), claim)
	require.ErrorIs(t, err, outbox.ErrSchema)
	require.ErrorContains(t, err, "sqlserver: defer waiting rows in outbox_messages: ")
}

func TestExchangeGivesUp(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", func(request) reply { return reply{err: serverError(1205)} })
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	var cause mssql.Error
	require.ErrorAs(t, err, &cause)
	assert.Equal(t, driver.Exchanged{}, result)
	assert.Len(t, server.requests, maxTries)
}

func TestExchangeIncomplete(t *testing.T) {
	t.Parallel()
	for name, sets := range map[string][]set{
		"nothing": {foreign}, "no outcome": {published2, claimed(false, 0)}, "no claim": {published2, other1},
	} {
		store, _ := newFake(t, "outbox_messages", inTurn(reply{sets: sets}))
		result, err := store.Exchange(t.Context(), testCompletion, testClaim)
		require.ErrorIs(t, err, errIncomplete, name)
		assert.Empty(t, result.Batch, name)
	}
}

func TestExchangeUnreadable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fanout_published", "fanout_other", "fanout_busy", "fanout_id"} {
		store, _ := newFake(t, "outbox_messages", inTurn(reply{sets: []set{{columns: []string{name}, rows: [][]sqldriver.Value{{"?"}}}}}))
		result, err := store.Exchange(t.Context(), testCompletion, testClaim)
		require.ErrorContains(t, err, "read "+name)
		assert.Equal(t, driver.Exchanged{}, result)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	lease := testLease
	lease.Duration = 1500 * time.Millisecond
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(errLockNotGranted)}, reply{sets: []set{count("fanout_renewed", 4)}}, reply{}, reply{err: errors.New("boom")},
	))
	kept, err := store.Renew(t.Context(), lease)
	require.NoError(t, err)
	assert.Equal(t, 4, kept)
	assert.Equal(t, map[string]any{
		"broker": "partner", "shard": int32(2), "claim_lock": store.shardLock("partner", 2), "token": lease.Token.String(),
		"first": int64(1), "last": int64(9), "lease_seconds": int32(1), "lease_micros": int32(500000),
	}, server.requests[1].args)
	_, err = store.Renew(t.Context(), lease)
	require.ErrorIs(t, err, errIncomplete)
	_, err = store.Renew(t.Context(), lease)
	require.EqualError(t, err, "sqlserver: renew a lease in outbox_messages: boom")
}

func TestReady(t *testing.T) {
	t.Parallel()
	shards := set{columns: []string{"fanout_shard"}, rows: [][]sqldriver.Value{{int64(0)}, {int64(3)}}}
	store, _ := newFake(t, "outbox_messages", inTurn(
		reply{sets: []set{shards}, err: serverError(1205)}, reply{sets: []set{shards}}, reply{err: serverError(208)},
	))
	got, err := store.Ready(t.Context(), "partner")
	require.NoError(t, err)
	assert.Equal(t, driver.Readiness{Shards: []int{0, 3}}, got)
	_, err = store.Ready(t.Context(), "partner")
	require.ErrorIs(t, err, outbox.ErrSchema)
}
