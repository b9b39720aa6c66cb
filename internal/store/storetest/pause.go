package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var pauseTests = []test{
	{name: "PauseAndResume", run: testPause},
	{name: "OneBrokerOnly", run: testPauseOneBroker},
	{name: "WhatIsInHandIsCompleted", run: testPauseInHand},
	{name: "OddTexts", run: testPauseTexts},
}

func (t *table) pause(p admin.Pause) (changed bool) {
	t.Helper()
	changed, err := t.Store.Pause(t.Context(), p)
	require.NoError(t, err)
	return changed
}

func (t *table) resume(broker string) (changed bool) {
	t.Helper()
	changed, err := t.Store.Resume(t.Context(), broker)
	require.NoError(t, err)
	return changed
}

// pauses lists what is paused, without the time, which has to be now.
func (t *table) pauses() []admin.Pause {
	t.Helper()
	pauses, err := t.Store.Pauses(t.Context())
	require.NoError(t, err)
	for i := range pauses {
		assert.WithinDuration(t, time.Now(), pauses[i].Since, time.Minute)
		assert.Equal(t, time.UTC, pauses[i].Since.Location())
		pauses[i].Since = time.Time{}
	}
	return pauses
}

func (t *table) readiness(broker string) driver.Readiness {
	t.Helper()
	ready, err := t.Store.Ready(t.Context(), broker, 0)
	require.NoError(t, err)
	return ready
}

func testPause(t *table) {
	t.add(t.keys(1)[0])
	assert.Empty(t, t.pauses())
	assert.Equal(t, driver.Readiness{Shards: []int{t.shard}}, t.readiness(broker))
	assert.False(t, t.resume(broker), "it is not paused")

	first := admin.Pause{Broker: broker, By: "ada", Reason: "the partner moves"}
	assert.True(t, t.pause(first))
	assert.Equal(t, driver.Readiness{Paused: true}, t.readiness(broker))
	assert.False(t, t.pause(admin.Pause{Broker: broker, By: "bob"}))
	assert.Equal(t, []admin.Pause{first}, t.pauses(), "the first pause stays as it is")

	assert.True(t, t.resume(broker))
	assert.False(t, t.resume(broker))
	assert.Empty(t, t.pauses())
	assert.Equal(t, driver.Readiness{Shards: []int{t.shard}}, t.readiness(broker), "nothing was forgotten")
	assert.True(t, t.pause(admin.Pause{Broker: broker}), "again")
	assert.Equal(t, []admin.Pause{{Broker: broker}}, t.pauses())
}

func testPauseOneBroker(t *table) {
	t.add(t.keys(1)[0])
	for _, name := range []string{"zeta", "Alpha", "alpha"} {
		assert.True(t, t.pause(admin.Pause{Broker: name}), name)
	}
	assert.Equal(t, []admin.Pause{{Broker: "Alpha"}, {Broker: "alpha"}, {Broker: "zeta"}}, t.pauses(), "by name, capitals first")
	assert.Equal(t, driver.Readiness{Shards: []int{t.shard}}, t.readiness(broker))
	assert.Equal(t, driver.Readiness{Paused: true}, t.readiness("alpha"), "also one without rows")
	assert.True(t, t.resume("alpha"))
	assert.Equal(t, []admin.Pause{{Broker: "Alpha"}, {Broker: "zeta"}}, t.pauses())
	_, err := t.Store.Pause(t.Context(), admin.Pause{})
	require.ErrorContains(t, err, "broker")
	_, err = t.Store.Pause(t.Context(), admin.Pause{Broker: "a\x00b"})
	require.ErrorContains(t, err, "zero byte")
}

// testPauseInHand: a pause takes nothing out of a worker's hands: it may still say what became of
// it.
func testPauseInHand(t *table) {
	ids := t.add(t.keys(1)[0], t.keys(1)[0])
	batch := t.claim()
	require.Len(t, batch.Messages, 2)
	t.pause(admin.Pause{Broker: broker})
	kept, err := t.Store.Renew(t.Context(), batch.Lease)
	require.NoError(t, err)
	assert.Equal(t, 2, kept)
	require.Zero(t, t.complete(&driver.Completion{
		Lease: batch.Lease, Published: []driver.Delivered{{ID: ids[0]}}, Other: []driver.Outcome{{ID: ids[1], Status: outbox.StatusPending}},
	}).Lost)
	assert.Equal(t, driver.Readiness{Paused: true}, t.readiness(broker))
	t.resume(broker)
	assert.Equal(t, driver.Readiness{Shards: []int{t.shard}}, t.readiness(broker))
}

func testPauseTexts(t *table) {
	odd := admin.Pause{Broker: "it's \"x\"", By: "Ünïcödé 🙂 ' \" ; --", Reason: "two\nlines"}
	assert.True(t, t.pause(odd))
	assert.Equal(t, []admin.Pause{odd}, t.pauses())
	assert.True(t, t.resume(odd.Broker))
}
