package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// finishAs makes a row what it is after a relay has finished with it.
func (t *table) finishAs(id int64, status outbox.Status, class string) {
	t.Helper()
	published := "NULL"
	if status == outbox.StatusPublished {
		published = "created_at"
	}
	t.exec("UPDATE {t} SET status = ?, finished_at = created_at, published_at = "+published+", last_error = ? WHERE id = ?",
		string(status), `{"class":"`+class+`","message":"why"}`, id)
}

// What comes back can be delivered: a time to live that has passed would have it abandoned again at
// once.
func testRequeueTTL(t *table) {
	later, earlier := t.sql.minus("created_at", -time.Hour), t.sql.minus("created_at", time.Hour)
	k := t.keys(4)
	ids := t.add(k...)
	expired, waiting, endless, published := ids[0], ids[1], ids[2], ids[3]
	t.exec("UPDATE {t} SET expires_at = "+earlier+" WHERE id IN (?, ?)", expired, published)
	t.exec("UPDATE {t} SET expires_at = "+later+" WHERE id = ?", waiting)
	for _, id := range ids[:3] {
		t.finishAs(id, outbox.StatusAbandoned, outbox.ClassExpired)
	}
	t.finishAs(published, outbox.StatusPublished, "retryable")
	expires := func() []int64 { return t.ids("SELECT id FROM {t} WHERE expires_at IS NOT NULL ORDER BY id") }

	assert.Equal(t, 3, t.requeue(admin.Filter{Broker: broker}))
	assert.Equal(t, 1, t.replay(admin.Filter{Broker: broker}))
	assert.Equal(t, []int64{waiting}, expires(), "what lies ahead stays")
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	for i := range batch.Messages {
		assert.False(t, batch.Messages[i].Expired(0))
	}
	t.publish(batch)

	for _, id := range ids[:3] {
		t.finishAs(id, outbox.StatusAbandoned, outbox.ClassExpired)
	}
	n, err := t.Store.Requeue(t.Context(), admin.Filter{Broker: broker}, many, admin.WithTTL(2*time.Hour))
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	assert.Equal(t, []int64{expired, waiting, endless}, expires())
	t.exec("UPDATE {t} SET expires_at = " + t.sql.minus("expires_at", 119*time.Minute))
	batch = t.claim()
	require.Len(t, batch.Messages, 3)
	for i := range batch.Messages {
		assert.False(t, batch.Messages[i].Expired(0), "a minute is left")
	}
	for _, ttl := range []time.Duration{0, -1, 11 * 365 * 24 * time.Hour} {
		_, err := t.Store.Requeue(t.Context(), admin.Filter{Broker: broker}, many, admin.WithTTL(ttl))
		require.ErrorContains(t, err, "the time to live (ttl) is ")
	}
}

// What no broker can get is left where it is, until an operator who has corrected it says so.
func testRequeueMalformed(t *table) {
	ids := t.add(t.keys(2)...)
	t.finishAs(ids[0], outbox.StatusAbandoned, outbox.ClassMalformed)
	t.finishAs(ids[1], outbox.StatusAbandoned, "permanent")
	assert.Equal(t, 1, t.requeue(admin.Filter{Broker: broker}))
	assert.Zero(t, t.requeue(t.these(ids...)), "named or not")
	assert.Equal(t, "abandoned", t.state(ids[0]).Status)
	corrected := t.these(ids...)
	corrected.ErrorClass = outbox.ClassMalformed
	assert.Equal(t, 1, t.requeue(corrected))
	assert.Equal(t, ids, taken(t.claim()))
}
