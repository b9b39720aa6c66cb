package integration_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// insertOfKey writes rows of one ordering key.
func (o *outbreak) insertOfKey(n int) {
	o.Helper()
	_, err := o.db.ExecContext(o.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', 'T', 'order-1', '' FROM generate_series(1, $1)`, n)
	require.NoError(o, err)
}

// messages are the message ids of the rows, in order.
func (o *outbreak) messages() (ids []string) {
	o.Helper()
	rows, err := o.db.QueryContext(o.Context(), "SELECT message_id FROM outbox_messages ORDER BY id")
	require.NoError(o, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(o, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(o, rows.Err())
	return ids
}

// text reads one value as text.
func (o *outbreak) text(query string, args ...any) (value string) {
	o.Helper()
	require.NoError(o, o.db.QueryRowContext(o.Context(), query, args...).Scan(&value))
	return value
}

// state is every column of every row.
func (o *outbreak) state() string {
	o.Helper()
	return o.text("SELECT md5(string_agg(m::text, ',' ORDER BY id)) FROM outbox_messages AS m")
}

// A relay is killed when the broker has confirmed, before it marks: the messages go again, under
// the same ids and in their order, not before the lease has ended, and none is lost.
func TestFault02KilledBetweenPublishAndMark(t *testing.T) {
	t.Parallel()
	o := newOutbreak(t)
	const rows = 300
	o.insertOfKey(rows)
	first, second := newRecord(t, "first"), newRecord(t, "second")
	dead := first.start(o.dsn, diesAfterSending)
	require.Error(t, dead.cmd.Wait(), "killed")
	_, sent := first.read()
	require.NotEmpty(t, sent)
	require.Zero(t, o.count("status = 'published'"), "nobody had the time to write it down")
	require.Positive(t, o.count("status = 'processing' AND lock_token IS NOT NULL"))
	leases := o.text("SELECT max(locked_until) FROM outbox_messages WHERE status = 'processing'")

	heir := second.start(o.dsn, "")
	eventually(t, func() bool { return o.count("finished_at IS NULL") == 0 })
	heir.stop(t)
	require.Equal(t, rows, o.count("status = 'published'"))
	assert.Equal(t, "true", o.text("SELECT min(published_at) >= $1::timestamptz FROM outbox_messages", leases), "not before the lease ended")
	_, again := second.read()
	assert.Equal(t, o.messages(), again, "each once more, in the order of the key")
	assert.Subset(t, again, sent, "under the same ids")
	assert.Regexp(t, `level=WARN msg="recovered rows from expired leases" database=test broker=b rows=\d+ crashes=1`, heir.log.String())
}

// A relay is stopped past its lease, in the middle of a send, and goes on: the send under way ends,
// no other one begins, its late mark changes no row, and it counts the lease as lost. What another
// relay did meanwhile stands.
func TestFault03StoppedPastItsLease(t *testing.T) {
	t.Parallel()
	o := newOutbreak(t)
	const rows = 300 // more than one call takes
	o.insertOfKey(rows)
	stopped, heir := newRecord(t, "stopped"), newRecord(t, "heir")
	sleeper := stopped.start(o.dsn, takesItsTime)
	eventually(t, func() bool { calls, _ := stopped.read(); return calls > 0 })
	require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGSTOP))
	calls, before := stopped.read()
	require.Less(t, len(before), rows, "it has not finished")
	require.Positive(t, o.count("status = 'processing'"))

	owner := heir.start(o.dsn, "")
	eventually(t, func() bool { return o.count("finished_at IS NULL") == 0 })
	owner.stop(t)
	state := o.state()
	_, delivered := heir.read()
	assert.Subset(t, o.messages(), delivered)

	require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, func() bool { _, ids := stopped.read(); return len(ids) > len(before) }) // the send under way ends
	sleeper.stop(t)
	callsAfter, after := stopped.read()
	assert.Equal(t, calls, callsAfter, "no send begins after the lease")
	assert.Less(t, len(after), rows, "the rest of the batch was not sent")
	assert.Equal(t, distinct(o.messages()), distinct(append(after, delivered...)), "nothing is lost")
	assert.Equal(t, state, o.state(), "the late mark changes no row")
	assert.Contains(t, sleeper.log.String(), "lease lost")
	assert.Regexp(t, `msg="processor stopped" lease_lost=[1-9]`, sleeper.log.String())
}

// A relay is killed with a claimed key: the key waits until the lease has ended, and no longer;
// other keys do not wait.
func TestFault01OwnerOfAKeyIsKilled(t *testing.T) {
	t.Parallel()
	o := newOutbreak(t)
	o.insertOfKey(10)
	first, second := newRecord(t, "first"), newRecord(t, "second")
	victim := first.start(o.dsn, takesItsTime)
	eventually(t, func() bool { calls, _ := first.read(); return calls > 0 })
	victim.kill()
	_, sent := first.read()
	require.Empty(t, sent, "killed before the broker had anything")
	lease := o.text("SELECT max(locked_until) FROM outbox_messages")

	heir := second.start(o.dsn, "")
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
		VALUES (gen_random_uuid(), 'b', 's', 'T', 'order-2', '')`)
	require.NoError(t, err)
	eventually(t, func() bool { return o.count("status = 'published'") > 0 })
	assert.Equal(t, 1, o.count("status = 'published' AND ordering_key = 'order-2'"), "the other key does not wait")
	eventually(t, func() bool { return o.count("finished_at IS NULL") == 0 })
	heir.stop(t)
	assert.Equal(t, 11, o.count("status = 'published'"))
	assert.Equal(t, "true", o.text("SELECT min(published_at) >= $1::timestamptz FROM outbox_messages WHERE ordering_key = 'order-1'", lease), "the lease stood")
	// Five seconds for a machine that does other things as well; the lease takes two.
	assert.Equal(t, "true", o.text("SELECT max(published_at) < $1::timestamptz + $2::interval FROM outbox_messages", lease, (5*time.Second).String()), "and no longer")
	_, delivered := second.read()
	assert.Equal(t, distinct(o.messages()), distinct(delivered))
	assert.Len(t, delivered, 11, "once each")
}
