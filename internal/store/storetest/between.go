package storetest

import (
	"context"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Nothing is locked while a decision is made about what was read. Here another session acts then.
var betweenTests = []test{
	{name: "ClaimAndRequeue", run: testBetweenClaimAndRequeue},
	{name: "ClaimAndLateRenewal", run: testBetweenClaimAndRenewal},
	{name: "ClaimAndLateCompletion", run: testBetweenClaimAndCompletion},
	{name: "ClaimAndClaim", run: testBetweenClaimAndClaim},
	{name: "ClaimAndPostponement", run: testBetweenClaimAndPostponement},
	{name: "UnorderedClaimAndDeferral", run: testBetweenUnorderedClaimAndDeferral},
	{name: "DeferralAndUnblock", run: testBetweenDeferralAndUnblock},
	{name: "DeferralAndLift", run: testBetweenDeferralAndLift},
	{name: "DeferralAndClaim", run: testBetweenDeferralAndClaim},
	{name: "DeferralAndAbandon", run: testBetweenDeferralAndAbandon},
	{name: "LiftAndDeferral", run: testBetweenLiftAndDeferral},
	{name: "FreeAndAbandon", run: func(t *table) { testBetweenLiftAndBlock(t, driver.MaxFollowers) }},
	{name: "LiftAndLateAbandon", run: testBetweenLiftAndLateAbandon},
	{name: "LiftAndLaterBlock", run: testBetweenLiftAndLaterBlock},
	{name: "LiftAndLateRenewal", run: testBetweenLiftAndRenewal},
	{name: "LiftAndPurge", run: testBetweenLiftAndPurge},
}

// between is a store beside which another session acts once, when a decision has been made and is not yet
// written.
type between struct {
	claims.Store

	act   func()
	acted bool
}

func (b *between) once() {
	if !b.acted {
		b.acted = true
		b.act()
	}
}

// Take implements [claims.Store].
func (b *between) Take(ctx context.Context, claim *driver.Claim, choice *driver.Choice) (driver.Batch, error) {
	b.once()
	return b.Store.Take(ctx, claim, choice)
}

// Defer implements [claims.Store].
func (b *between) Defer(ctx context.Context, deferral *driver.Deferral) (int, error) {
	b.once()
	return b.Store.Defer(ctx, deferral)
}

// Lift implements [claims.Store].
func (b *between) Lift(ctx context.Context, lift *driver.Lift) error {
	b.once()
	return b.Store.Lift(ctx, lift)
}

// beside makes a store beside which act is called, or skips the test where the database lets no session in
// between.
func (t *table) beside(act func()) *between {
	t.Helper()
	if t.Decided == nil {
		t.Skip("a decision and what follows are one transaction here, beside which no session writes")
	}
	return &between{Store: t.Decided(t.another()), act: act}
}

// claimBeside claims, with a decision that is to be made.
func (t *table) claimBeside(act func(), change ...func(*driver.Claim)) driver.Batch {
	t.Helper()
	store := t.beside(act)
	exchanged, err := claims.Exchange(t.Context(), store, nil, t.request(change...))
	require.NoError(t, err)
	require.True(t, store.acted, "there was nothing to decide")
	return exchanged.Batch
}

func (t *table) deferBeside(act func()) (deferred int) {
	t.Helper()
	store := t.beside(act)
	deferred, err := claims.Defer(t.Context(), store, t.request())
	require.NoError(t, err)
	require.True(t, store.acted, "there was nothing to defer")
	return deferred
}

// decided makes it necessary to decide about the shard of the test: the last row has a crash behind it.
func (t *table) decided(key string) {
	t.Helper()
	t.exec("UPDATE {t} SET crashes = 1 WHERE id = ?", t.add(key)[0])
}

// What comes back before the rows that were chosen goes first, in each shard.
func testBetweenClaimAndRequeue(t *table) {
	for shard := range t.Store.Shards() {
		k := t.keysIn(shard, 2)
		ids := t.add(k[0], k[0])
		t.abandonByHand(ids[0])
		t.decided(k[1])
		batch := t.claimBeside(func() { assert.Equal(t, 1, t.requeue(t.these(ids[0]))) })
		assert.Equal(t, ids, taken(batch), "shard %d", shard)
	}
}

// A lease that was renewed late, before anybody else had the row, is one.
func testBetweenClaimAndRenewal(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	first := t.claim(limit(1))
	t.expire(ids[0])
	batch := t.claimBeside(func() { assert.Equal(t, 1, t.renew(first.Lease)) })
	assert.Empty(t, taken(batch))
	t.publish(first)
	t.next(ids[1])
}

// So is an outcome: the row is done, and its key goes on, or not.
func testBetweenClaimAndCompletion(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	first := t.claim(limit(1))
	t.expire(ids[0])
	abandoned := blocking(first)
	batch := t.claimBeside(func() { assert.Zero(t, t.complete(abandoned).Lost) })
	assert.Empty(t, taken(batch), "an operator has to act")
	assert.Equal(t, 1, t.blocks())
	assert.True(t, t.release(k))
	t.next(ids[1])
	t.clean()
}

func testBetweenClaimAndClaim(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0])
	t.decided(k[1])
	var first driver.Batch
	batch := t.claimBeside(func() { first = t.claim(limit(2)) })
	assert.Equal(t, ids, taken(first))
	assert.NotContains(t, taken(batch), ids[0])
	assert.NotContains(t, taken(batch), ids[1])
}

// A row that is scheduled by now is not taken. The one behind it is: its key passes it.
func testBetweenClaimAndPostponement(t *table) {
	for _, isUnordered := range []bool{false, true} {
		k := t.keys(2)
		ids := t.add(k[0], k[0])
		t.decided(k[1])
		batch := t.claimBeside(func() {
			t.exec("UPDATE {t} SET available_at = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", ids[0])
		}, func(c *driver.Claim) { c.Unordered = isUnordered })
		assert.NotContains(t, taken(batch), ids[0], "unordered: %t", isUnordered)
		assert.Contains(t, taken(batch), ids[1])
		t.exec("DELETE FROM {t}")
	}
}

// Rows that were deferred stay where they are until their block is lifted, also where order is off.
func testBetweenUnorderedClaimAndDeferral(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0])
	t.decided(k[1])
	batch := t.claimBeside(func() {
		t.failHead(ids[0])
		require.Equal(t, 2, t.deferRows())
	}, unordered)
	assert.NotContains(t, taken(batch), ids[0])
	assert.NotContains(t, taken(batch), ids[1])
	t.publish(batch)
	assert.Subset(t, t.all(), ids)
	t.clean()
}

// A row is not deferred behind a block that is there no more: no statement would bring it back.
func testBetweenDeferralAndUnblock(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.abandonAndBlock(ids[0])
	t.deferBeside(func() { assert.True(t, t.release(k)) })
	assert.Equal(t, ids[1:], t.drain())
	t.clean()
}

// The same when the block is gone altogether.
func testBetweenDeferralAndLift(t *table) {
	k := t.keys(2)
	ids := t.add(k[0])
	t.abandonAndBlock(ids[0])
	other, follower := t.add(k[1]), t.add(k[0])
	var batch driver.Batch
	t.deferBeside(func() {
		assert.True(t, t.release(k[0]))
		batch = t.claim(limit(1), wake)
	})
	require.Equal(t, other, taken(batch))
	t.publish(batch)
	assert.Equal(t, follower, t.drain())
	t.clean()
}

// Of two keys that wait, the head of one is claimed: what is behind it waits for its outcome, and not for
// the end of a lease.
func testBetweenDeferralAndClaim(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[1], k[1])
	t.failHead(ids[0])
	t.failHead(ids[2])
	var batch driver.Batch
	t.deferBeside(func() {
		t.expire(ids[0])
		batch = t.claim(limit(1))
	})
	require.Equal(t, ids[:1], taken(batch))
	t.publish(batch)
	t.next(ids[1])
	t.pass()
	assert.Equal(t, ids[2:], t.drain())
	t.clean()
}

func testBetweenDeferralAndAbandon(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.failHead(ids[0])
	t.deferBeside(func() { assert.Equal(t, 1, t.abandon(t.these(ids[0]))) })
	assert.Equal(t, ids[1:], t.all(), "an operator who abandons a row lets its key go on")
	t.clean()
}

// failedBlock is a block whose row has failed, with its followers.
func (t *table) failedBlock() (key string, ids []int64) {
	t.Helper()
	key = t.keys(1)[0]
	ids = t.add(key, key)
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	t.pass()
	return key, ids
}

// What was deferred behind a block that is being lifted comes back with it.
func testBetweenLiftAndDeferral(t *table) {
	key, ids := t.failedBlock()
	late := t.add(key)
	t.claimBeside(func() { require.Equal(t, 1, t.deferRows()) }, wake)
	t.pass()
	assert.ElementsMatch(t, append(ids, late...), t.all())
	t.clean()
}

// A block that is done is to let its followers through; meanwhile its row comes back, and the key is to wait
// for an operator.
func testBetweenLiftAndBlock(t *table, followers int) {
	key := t.keys(1)[0]
	ids := t.add(slices.Repeat([]string{key}, 1+followers)...)
	t.failHead(ids[0])
	require.Equal(t, len(ids), t.deferRows(window(4000)))
	t.pass()
	require.Zero(t, t.complete(outcome(t.claim(wake), driver.Outcome{Status: outbox.StatusAbandoned, Spent: true})).Lost)
	t.claimBeside(func() {
		assert.Equal(t, 1, t.requeue(t.these(ids[0])))
		t.abandonAndBlock(ids[0])
	}, wake)
	late := t.add(key)
	t.nothing("an operator has to act")
	assert.True(t, t.release(key))
	assert.Equal(t, append(ids[1:], late...), t.drain())
	t.clean()
}

// overdue is a row whose lease is over, with its owner, and one that is deferred behind it.
func (t *table) overdue() (key string, ids []int64, first driver.Batch) {
	t.Helper()
	key, ids = t.failedBlock()
	first = t.claim(limit(1), wake)
	require.Equal(t, ids[:1], taken(first))
	t.expire(ids[0])
	t.exec("UPDATE {t}_key_blocks SET wake_at = " + t.sql.minus("wake_at", 2*lease))
	return key, ids, first
}

// The same where the row's owner does that, late.
func testBetweenLiftAndLateAbandon(t *table) {
	key, ids, first := t.overdue()
	abandoned := blocking(first)
	batch := t.claimBeside(func() { assert.Zero(t, t.complete(abandoned).Lost) }, wake)
	assert.Empty(t, taken(batch))
	assert.Empty(t, t.all(), "an operator has to act")
	assert.True(t, t.release(key))
	assert.Equal(t, ids[1:], t.drain())
	t.clean()
}

// Of two rows that a relay has claimed the first comes to another one, which fails with it; the second is
// abandoned by its owner while the first is to come back: from there on the key waits for an operator.
func testBetweenLiftAndLaterBlock(t *table) {
	key := t.keys(1)[0]
	ids := t.add(key, key, key)
	first := t.claim(limit(2))
	require.Equal(t, ids[:2], taken(first))
	t.expire(ids[:2]...)
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	t.pass()
	abandoned := &driver.Completion{Lease: first.Lease, BlockAbandoned: true, Other: []driver.Outcome{
		{ID: ids[1], Status: outbox.StatusAbandoned, Spent: true, LastError: `{"class":"permanent"}`},
	}}
	t.claimBeside(func() { assert.Zero(t, t.complete(abandoned).Lost) }, wake)
	t.expire(ids[0])
	t.all()
	assert.Equal(t, "published", t.state(ids[0]).Status)
	assert.Equal(t, "pending", t.state(ids[2]).Status, "an operator has to act")
	assert.True(t, t.release(key))
	assert.Equal(t, ids[2:], t.drain())
	t.clean()
}

func testBetweenLiftAndRenewal(t *table) {
	_, ids, first := t.overdue()
	batch := t.claimBeside(func() { assert.Equal(t, 1, t.renew(first.Lease)) }, wake)
	assert.Empty(t, taken(batch))
	t.publish(first)
	assert.Equal(t, ids[1:], t.all())
	t.clean()
}

func testBetweenLiftAndPurge(t *table) {
	_, ids := t.failedBlock()
	t.claimBeside(func() {
		batch := t.claim(limit(1), wake)
		require.Equal(t, ids[:1], taken(batch))
		t.publish(batch)
		t.ageFinished(ids[0], 2*lease)
		n, err := t.Store.Purge(t.Context(), admin.PurgeRequest{Broker: broker, Status: outbox.StatusPublished, Retention: lease, Limit: many})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}, wake)
	assert.Equal(t, ids[1:], t.all())
	t.clean()
}
