package sqlserver

import (
	sqldriver "database/sql/driver"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
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

// head is what a claim says of its window; simple, where it has taken it as it stands.
func head(simple bool, seen int64) set {
	return set{
		columns: []string{"fanout_busy", "simple", "seen", "waiting", "version", "blocked"},
		rows:    [][]sqldriver.Value{{false, simple, seen, int64(0), int64(42), false}},
	}
}

func claimed(seen int64) set { return head(true, seen) }

// windowRows are rows of a window that are pending, and of the key "k".
func windowRows(ids ...int64) set {
	s := set{columns: []string{"fanout_row", "ordering_key", "held", "leased", "waits", "crashes", "bytes", "block_id"}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{id, "k", false, false, false, int64(0), int64(2), nil})
	}
	return s
}

// blockRows are blocks of the keys "1", "2" and so on.
func blockRows(due, done, waits bool, ids ...int64) set {
	s := set{columns: []string{"fanout_block", "ordering_key", "has_key", "due", "done", "waits", "scheduled"}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{id, strconv.FormatInt(id, 10), true, due, done, waits, false})
	}
	return s
}

var created = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func messages(ids ...int64) set {
	s := set{columns: []string{
		"fanout_id", "message_id", "stream", "type", "ordering_key", "priority", "content_type", "headers",
		"correlation_id", "attempts", "crashes", "created_at", "expires_in", "payload", "unread",
	}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{
			id, "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b", "ordering::order", "T.v1", "k", int64(-3), "application/json", `{"a":"b"}`,
			"c", int64(1), int64(2), created, int64(-1), []byte("{}"), int64(7),
		})
	}
	return s
}

func TestExchangeIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(reply{
		sets: []set{foreign, published2, foreign, other1, foreign, claimed(17), messages(4, 5)},
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
		ExpiresIn: -time.Microsecond, Payload: []byte("{}"), Unread: 7,
	}, result.Batch.Messages[0])

	require.Len(t, server.requests, 1)
	assert.Equal(t, store.sql.exchange[parts{published: true, other: true, claim: true}], server.requests[0].text)
	assert.Equal(t, map[string]any{
		"completed_token":  testLease.Token.String(),
		"published":        mssql.NVarCharMax(`[{"i":1,"b":"17-0"},{"i":3}]`),
		"other":            mssql.NVarCharMax(`[{"i":2,"s":"failed","a":1,"d":60,"u":0,"e":"{}"}]`),
		"completed_broker": "partner", "completed_shard": int32(2), "block_abandoned": false,
		"broker": "partner", "shard": int32(3), "window": int64(20), "limit": int64(10), "bytes": int64(1 << 20), "shared": false, "unordered": false, "most": int64(math.MaxInt64),
		"worker": mssql.NVarCharMax("w"), "token": token.String(), "lease_seconds": int32(90), "lease_micros": int32(0),
		"wake": false, "max_blocks": int64(driver.MaxBlocks), "max_done": int64(driver.MaxDone), "max_followers": int64(driver.MaxFollowers), "admits": int64(5), "per_key": int64(0),
	}, server.requests[0].args)
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

// After a deadlock only that is repeated which the server has not confirmed, so that what the first
// try marked does not look lost.
func TestExchangeRepeatsWhatIsLeft(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(1222)},
		reply{sets: []set{published2}, err: serverError(1205)},
		reply{sets: []set{other1, claimed(1), messages(4)}},
	))
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	require.NoError(t, err)
	assert.Equal(t, &driver.Completed{}, result.Completed)
	assert.Len(t, result.Batch.Messages, 1)
	all := store.sql.exchange
	assert.Equal(t, []string{
		all[parts{published: true, other: true, claim: true}], all[parts{published: true, other: true, claim: true}], all[parts{other: true, claim: true}],
	}, server.texts())
}

// A claim whose answer broke off is made anew, under a token of its own and without the result of
// the first.
func TestExchangeClaimsAnew(t *testing.T) {
	t.Parallel()
	unordered := *testClaim
	unordered.Unordered = true
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{sets: []set{claimed(2), messages(4)}, err: serverError(1205)},
		reply{sets: []set{claimed(1), messages(6)}},
	))
	result, err := store.Exchange(t.Context(), nil, &unordered)
	require.NoError(t, err)
	require.Len(t, result.Batch.Messages, 1)
	assert.EqualValues(t, 6, result.Batch.Messages[0].ID)
	assert.Equal(t, 1, result.Batch.Seen)
	assert.NotEqual(t, server.requests[0].args["token"], server.requests[1].args["token"])
	assert.Equal(t, result.Batch.Lease.Token.String(), server.requests[1].args["token"])
	assert.Equal(t, int64(10), server.requests[0].args["window"], "nothing waits for anything")
}

// A row that an operator changed by hand while it was being claimed is no reason to give up, nor to
// take what is behind it.
func TestExchangeRowChanged(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{sets: []set{published2, other1}, err: serverError(errChanged)},
		reply{sets: []set{claimed(1), messages(4)}},
	))
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	require.NoError(t, err)
	assert.Equal(t, &driver.Completed{}, result.Completed)
	assert.Len(t, result.Batch.Messages, 1)
	assert.Equal(t, store.sql.exchange[parts{claim: true}], server.texts()[1])
}

// Where the window is not simple it is decided about, and what was decided is taken in a second
// round trip.
func TestExchangeDecides(t *testing.T) {
	t.Parallel()
	window := windowRows(4, 5, 6, 7, 8)
	window.rows[1][1], window.rows[1][2] = "l", true     // 5 is being written
	window.rows[2][1] = "l"                              // and holds 6
	window.rows[3][4], window.rows[3][1] = true, "m"     // 7 waits for a time
	window.rows[4][1], window.rows[4][7] = "n", int64(3) // 8 is behind a block
	answer := head(false, 5)
	answer.rows[0][5] = true
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{sets: []set{answer, window}}, reply{sets: []set{count("fanout_taken", 1), messages(4)}},
	))
	result, err := store.Exchange(t.Context(), nil, testClaim)
	require.NoError(t, err)
	require.Len(t, result.Batch.Messages, 1)
	token := result.Batch.Lease.Token
	assert.Equal(t, driver.Lease{Broker: "partner", Shard: 3, Token: token, FirstID: 4, LastID: 4, Duration: 90 * time.Second}, result.Batch.Lease)
	assert.Equal(t, []any{5, 2, true, false}, []any{result.Batch.Seen, result.Batch.Waiting, result.Batch.Blocked, result.Batch.Cut})
	assert.Equal(t, []string{store.sql.exchange[parts{claim: true}], store.sql.take}, server.texts())
	assert.Equal(t, map[string]any{
		"broker": "partner", "shard": int32(3), "shared": false, "unordered": false, "most": int64(math.MaxInt64), "worker": mssql.NVarCharMax("w"), "token": token.String(),
		"lease_seconds": int32(90), "lease_micros": int32(0), "decided": int64(42), "ids": mssql.NVarCharMax("[4]"),
	}, server.requests[1].args)
	assert.NotEqual(t, server.requests[0].args["token"], token.String())
}

// What has changed since it was decided is decided anew, a few times; then the shard is left to
// those who are at work there.
func TestExchangeConflict(t *testing.T) {
	t.Parallel()
	for _, number := range []int32{errChanged, 1205, 1222, 2627} {
		looked := reply{sets: []set{head(false, 2), windowRows(4, 5)}}
		store, server := newFake(t, "outbox_messages", inTurn(
			looked, reply{err: serverError(number)}, looked, reply{err: serverError(number)}, looked, reply{err: serverError(number)},
		))
		result, err := store.Exchange(t.Context(), nil, testClaim)
		require.NoError(t, err)
		assert.Equal(t, driver.Batch{Busy: true}, result.Batch)
		assert.Len(t, server.requests, 6)
	}
	store, _ := newFake(t, "outbox_messages", inTurn(
		reply{sets: []set{published2, other1, head(false, 1), windowRows(4)}}, reply{sets: []set{messages(4)}},
	))
	result, err := store.Exchange(t.Context(), testCompletion, testClaim)
	require.ErrorIs(t, err, errIncomplete, "the server has not said that the rows are taken")
	assert.Equal(t, driver.Exchanged{Completed: &driver.Completed{}}, result)
}

// A claim that wakes reads blocks, has them lifted, and looks again.
func TestExchangeLifts(t *testing.T) {
	t.Parallel()
	for _, unordered := range []bool{false, true} {
		claim := *testClaim
		claim.Shard, claim.Wake, claim.Unordered = 6, true, unordered
		blocks := blockRows(true, false, false, 3)
		blocks.rows = append(blocks.rows, blockRows(false, true, false, 5, 6).rows...)
		blocks.rows = append(blocks.rows, blockRows(false, false, true, 9).rows...)
		blocks.rows = append(blocks.rows, []sqldriver.Value{int64(10), "", false, false, false, false, true})
		followers := set{columns: []string{"fanout_follower", "id"}, rows: [][]sqldriver.Value{{int64(5), int64(8)}, {int64(5), int64(11)}}}
		for id := range int64(driver.MaxFollowers) {
			followers.rows = append(followers.rows, []sqldriver.Value{int64(6), 100 + id})
		}
		waiting := windowRows(4)
		waiting.rows[0][4] = true
		store, server := newFake(t, "outbox_messages", inTurn(
			reply{sets: []set{head(false, 1), waiting, blocks, followers}}, reply{}, reply{sets: []set{claimed(1), messages(4)}},
		))
		result, err := store.Exchange(t.Context(), nil, &claim)
		require.NoError(t, err)
		require.Len(t, result.Batch.Messages, 1)
		text := store.sql.exchange[parts{claim: true}]
		require.Equal(t, []string{text, store.sql.lift, text}, server.texts())
		assert.Equal(t, true, server.requests[0].args["wake"])
		assert.Equal(t, false, server.requests[2].args["wake"])
		changes := string(server.requests[1].args["changes"].(mssql.NVarCharMax))
		delete(server.requests[1].args, "changes")
		assert.Equal(t, map[string]any{"broker": "partner", "shard": int32(6), "decided": int64(42)}, server.requests[1].args)
		assert.True(t, strings.HasPrefix(changes, `[{"k":1,"i":3},{"k":3,"i":5},{"k":4,"i":8},{"k":2,"i":9},{"k":6,"i":10},{"k":4,"i":11},{"k":4,"i":100},`), changes)
		assert.True(t, strings.HasSuffix(changes, `,{"k":4,"i":598},{"k":5,"i":599,"b":6}]`), "the last follower of many is the next block")
	}
}

func TestDefer(t *testing.T) {
	t.Parallel()
	announced := set{columns: []string{"fanout_window", "blocked"}, rows: [][]sqldriver.Value{{int64(7), true}}}
	window := windowRows(4, 5, 6, 7, 8)
	window.rows[0][4], window.rows[0][2], window.rows[0][1] = true, true, "l" // another transaction is writing it
	window.rows[1][4], window.rows[3][3], window.rows[3][4] = true, true, true
	window.rows[4][2] = true
	looked := reply{sets: []set{announced, window}}
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(1222)}, looked, reply{err: serverError(errChanged)}, looked, reply{sets: []set{count("fanout_deferred", 2)}},
		looked, reply{}, reply{}, reply{err: serverError(208)},
	))
	claim := &driver.Claim{Broker: "partner", Shard: 5, Window: 4000}
	deferred, err := store.Defer(t.Context(), claim)
	require.NoError(t, err)
	assert.Equal(t, 2, deferred)
	assert.Equal(t, []string{store.sql.window, store.sql.window, store.sql.deferRows, store.sql.window, store.sql.deferRows}, server.texts())
	assert.Equal(t, map[string]any{"broker": "partner", "shard": int32(5), "window": int64(4000), "bytes": int64(math.MaxInt64)}, server.requests[3].args)
	assert.Equal(t, map[string]any{
		"broker": "partner", "shard": int32(5), "decided": int64(7), "blocks": mssql.NVarCharMax("[5]"), "rows": mssql.NVarCharMax("[5,6]"), "unordered": false,
	}, server.requests[4].args)
	for range 2 {
		_, err = store.Defer(t.Context(), claim)
		require.ErrorIs(t, err, errIncomplete)
	}
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
	assert.Len(t, server.requests, contention.Tries)
}

func TestExchangeIncomplete(t *testing.T) {
	t.Parallel()
	for name, sets := range map[string][]set{
		"nothing": {foreign}, "no outcome": {published2, claimed(0)}, "no claim": {published2, other1},
	} {
		store, _ := newFake(t, "outbox_messages", inTurn(reply{sets: sets}))
		result, err := store.Exchange(t.Context(), testCompletion, testClaim)
		require.ErrorIs(t, err, errIncomplete, name)
		assert.Empty(t, result.Batch, name)
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
		"broker": "partner", "shard": int32(2), "token": lease.Token.String(),
		"first": int64(1), "last": int64(9), "lease_seconds": int32(1), "lease_micros": int32(500000),
	}, server.requests[1].args)
	_, err = store.Renew(t.Context(), lease)
	require.ErrorIs(t, err, errIncomplete)
	_, err = store.Renew(t.Context(), lease)
	require.EqualError(t, err, "sqlserver: renew a lease in outbox_messages: boom")
}
