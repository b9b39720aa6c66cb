package mysql

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// lookAtAll makes the next claim a full look.
func (d *tide) lookAtAll() {
	d.store.water.mu.Lock()
	defer d.store.water.mu.Unlock()
	d.store.water.line("b", d.shard).full = time.Time{}
}

// deferFirst has the only row wait, and defers it.
func (d *tide) deferFirst(id int64) {
	d.Helper()
	exchanged, err := d.store.Exchange(d.Context(), nil, d.claim(false))
	require.NoError(d, err)
	require.Len(d, exchanged.Batch.Messages, 1)
	failed := driver.Outcome{ID: id, Status: outbox.StatusFailed, Spent: true, Delay: time.Hour, LastError: `{}`}
	_, err = d.store.Exchange(d.Context(), &driver.Completion{Lease: exchanged.Batch.Lease, Other: []driver.Outcome{failed}}, nil)
	require.NoError(d, err)
	deferred, err := d.store.Defer(d.Context(), d.claim(false))
	require.NoError(d, err)
	require.Equal(d, 1, deferred)
}

// due ends the wait of a deferred row.
func (d *tide) due(id int64) {
	d.Helper()
	d.exec(d.store.db, "UPDATE outbox_messages SET locked_until = UTC_TIMESTAMP(6) WHERE id = ?", id)
	d.exec(d.store.db, "UPDATE outbox_messages_key_blocks SET wake_at = UTC_TIMESTAMP(6) WHERE block_id = ?", id)
}

// Rows that come back below a mark are claimed: those of blocks that this process lifts, those that an
// operator opens, and those that are opened by hand, by the next full look.
func TestRowsComeBackBelowAMark(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	id := d.highest()
	d.deferFirst(id)
	d.rise(id, 0)
	d.due(id)
	before := d.mark()
	assert.Equal(t, []string{"first0"}, d.deliver(false))
	if after := d.mark(); assert.Equal(t, before.floor, after.floor, "what this process lifts, it knows") {
		assert.Equal(t, []int64{id}, after.late)
	}
	d.rise(id, 0)

	d.exec(d.store.db, "UPDATE outbox_messages SET status = 'pending', published_at = NULL, finished_at = NULL WHERE id = ?", id)
	assert.Empty(t, d.deliver(false), "it was not counted")
	d.lookAtAll()
	assert.Equal(t, []string{"first0"}, d.deliver(false))
	d.rise(id, 0)

	d.exec(d.store.db, "UPDATE outbox_messages SET status = 'pending', published_at = NULL, finished_at = NULL WHERE id = ?", id)
	d.exec(d.store.db, "UPDATE outbox_messages_shards SET version = version + 1")
	assert.Equal(t, []string{"first0"}, d.deliver(false), "an operator has")
	d.rise(id, 0)
	d.exec(d.store.db, "UPDATE outbox_messages SET status = 'pending', published_at = NULL, finished_at = NULL WHERE id = ?", id)
	d.exec(d.store.db, "UPDATE outbox_messages_shards SET version = version + 1")
	ready, err := d.store.Ready(t.Context(), "b", 0)
	require.NoError(t, err)
	assert.Equal(t, []int{d.shard}, ready.Shards, "and a look sees it, too")
}

// Marks belong to one server since its start. In a session of another one they are dropped.
func TestMarksAreThoseOfOneServer(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"look", "claim", "claim without order"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			d := newTide(t)
			require.Equal(t, []string{"first0"}, d.deliver(false))
			d.rise(1, 0)
			// As if the server had begun anew, with what it had lost.
			d.exec(d.store.db, "INSERT INTO outbox_messages (id, message_id, target_broker, stream, type, ordering_key, payload) VALUES (-1, UNHEX(REPLACE(UUID(), '-', '')), 'b', 's', 'again', 'key', '')")
			endSessions := func() { d.store.db.SetMaxIdleConns(0); d.store.db.SetMaxIdleConns(10) }
			endSessions()
			if assert.Empty(t, d.deliver(false), "the same server") {
				d.store.water.mu.Lock()
				d.store.water.started -= 10
				d.store.water.mu.Unlock()
			}
			endSessions()
			if first == "look" {
				ready, err := d.store.Ready(t.Context(), "b", 0)
				require.NoError(t, err)
				assert.Equal(t, []int{d.shard}, ready.Shards)
			}
			assert.Equal(t, []string{"again"}, d.deliver(first == "claim without order"))
		})
	}
}

// What this process has counted is of one shard and its classes, and of marks that were made before.
func TestChangesAreOfOneShard(t *testing.T) {
	t.Parallel()
	var w lowWater
	mark := func(broker string, shard int) *waterMark { return &w.line(broker, shard).mark }
	class := outbox.Shards + 1
	for _, m := range []*waterMark{mark("b", 1), mark("b", class), mark("b", 2), mark("c", 1)} {
		*m = waterMark{version: 5, floor: 10}
	}
	w.changed("b", 1, 4, []int64{2})
	assert.Equal(t, waterMark{version: 5, floor: 10}, *mark("b", 1), "it was made before")
	w.changed("b", 1, 5, []int64{3, 12})
	assert.Equal(t, waterMark{version: 6, floor: 10, late: []int64{3}}, *mark("b", 1))
	assert.EqualValues(t, 6, mark("b", class).version)
	assert.Equal(t, []int64{3}, mark("b", class).late, "it may have another priority now")
	assert.EqualValues(t, 5, mark("b", 2).version)
	assert.EqualValues(t, 5, mark("c", 1).version)
}
