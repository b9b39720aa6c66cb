package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

var aloneTests = []test{
	{name: "AnyOpenRowCounts", run: testOnlyRow},
	{name: "OfAStream", run: testOnlyRowOfAStream},
}

func (t *table) alone(stream string, id int64) bool {
	t.Helper()
	alone, err := t.Store.Alone(t.Context(), broker, stream, id)
	require.NoError(t, err)
	return alone
}

// A row is alone where no other of its broker is open, in whatever status, shard and queue that is.
func testOnlyRow(t *table) {
	one := newRow("")
	stream, id := one.Stream, t.insert(one)[0]
	elsewhere := newRow("")
	elsewhere.TargetBroker = "another"
	t.insert(elsewhere)
	beside := func(row browsed) int64 {
		rows := []browsed{row}
		rows[0].broker, rows[0].created, rows[0].finished = broker, time.Now(), time.Now()
		rows[0].eventType = "T"
		t.write(rows)
		return rows[0].id
	}
	assert.True(t, t.alone("", id))
	assert.True(t, t.alone(stream, id))
	beside(browsed{status: outbox.StatusPublished})
	beside(browsed{status: outbox.StatusAbandoned})
	assert.True(t, t.alone("", id), "what is finished does not count")
	for _, other := range []browsed{
		{status: outbox.StatusPending},
		{status: outbox.StatusProcessing},
		{status: outbox.StatusFailed, class: "retryable"},
		{status: outbox.StatusPending, key: "k"},
		{status: outbox.StatusPending, deferred: true},
		{status: outbox.StatusFailed, class: "x", key: "k", deferred: true},
	} {
		otherID := beside(other)
		assert.False(t, t.alone("", id), "%+v", other)
		assert.False(t, t.alone(stream, id), "%+v", other)
		assert.False(t, t.alone("", otherID), "%+v", other)
		t.exec("DELETE FROM {t} WHERE id = ?", otherID)
		assert.True(t, t.alone("", id))
		assert.True(t, t.alone(stream, id))
	}
}

// Rows for other streams do not count where one is asked for, up to a number.
func testOnlyRowOfAStream(t *table) {
	one, other := newRow("k"), newRow("k")
	other.Stream = "other"
	id := t.insert(one)[0]
	rows := make([]outbox.Row, 100)
	for i := range rows {
		rows[i] = other
		rows[i].MessageID = newRow("").MessageID
	}
	ids := t.insert(rows...)
	t.exec("UPDATE {t} SET deferred = "+t.sql.yes+" WHERE id > ?", ids[50])
	assert.True(t, t.alone(one.Stream, id))
	assert.False(t, t.alone("", id))
	assert.False(t, t.alone(other.Stream, ids[0]))
	t.exec("UPDATE {t} SET stream = ? WHERE id = ?", one.Stream, ids[99])
	assert.False(t, t.alone(one.Stream, id), "a deferred one")
	assert.False(t, t.alone(one.Stream, ids[99]))
	t.exec("DELETE FROM {t} WHERE id = ?", id)
	assert.True(t, t.alone(one.Stream, ids[99]))
}
