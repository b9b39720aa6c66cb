package integration_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// insertOfKey writes rows of one ordering key.
func (o *outbreak) insertOfKey(key string, n int) {
	o.Helper()
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T", OrderingKey: key}
	}
	o.write(rows...)
}

// A relay is killed when the broker has confirmed, before it marks: the messages go again, under
// the same ids and in their order, not before the lease has ended, and none is lost.
func TestFault02KilledBetweenPublishAndMark(t *testing.T) {
	t.Parallel()
	onServers(t, testFault02KilledBetweenPublishAndMark)
}

func testFault02KilledBetweenPublishAndMark(t *testing.T, p *place) {
	t.Helper()
	o := newOutbreak(p)
	const rows = 300
	o.insertOfKey("order-1", rows)
	first, second := newRecord(t, "first"), newRecord(t, "second")
	dead := first.start(p, diesAfterSending)
	require.Error(t, dead.cmd.Wait(), "killed")
	_, sent := first.read()
	require.NotEmpty(t, sent)
	require.Zero(t, o.count("status = 'published'"), "nobody had the time to write it down")
	require.Positive(t, o.count("status = 'processing' AND lock_token IS NOT NULL"))
	leases := o.moment("SELECT max(locked_until) FROM outbox_messages WHERE status = 'processing'")

	heir := second.start(p, "")
	eventually(t, func() bool { return o.count("finished_at IS NULL") == 0 })
	heir.stop(t)
	require.Equal(t, rows, o.count("status = 'published'"))
	assert.False(t, o.moment("SELECT min(published_at) FROM outbox_messages").Before(leases), "not before the lease ended")
	_, again := second.read()
	assert.Equal(t, o.messages(), again, "each once more, in the order of the key")
	assert.Subset(t, again, sent, "under the same ids")
	assert.Regexp(t, `level=WARN msg="recovered rows from expired leases" database=test broker=b rows=\d+ crashes=1`, heir.log.String())
}

// A relay is stopped past its lease, in the middle of a send, and goes on: the send in progress ends,
// no other one begins, its late mark changes no row, and it counts the lease as lost. What another
// relay did meanwhile stands.
func TestFault03StoppedPastItsLease(t *testing.T) {
	t.Parallel()
	onServers(t, testFault03StoppedPastItsLease)
}

func testFault03StoppedPastItsLease(t *testing.T, p *place) {
	t.Helper()
	o := newOutbreak(p)
	const rows = 300 // more than one call takes
	o.insertOfKey("order-1", rows)
	stopped, heir := newRecord(t, "stopped"), newRecord(t, "heir")
	sleeper := stopped.start(p, takesItsTime)
	eventually(t, func() bool { calls, _ := stopped.read(); return calls > 0 })
	require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGSTOP))
	calls, before := stopped.read()
	require.Less(t, len(before), rows, "it has not finished")
	require.Positive(t, o.count("status = 'processing'"))

	owner := heir.start(p, "")
	eventually(t, func() bool { return o.count("finished_at IS NULL") == 0 })
	owner.stop(t)
	state := o.state()
	_, delivered := heir.read()
	assert.Subset(t, o.messages(), delivered)

	require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, func() bool { _, ids := stopped.read(); return len(ids) > len(before) }) // the send in progress ends
	sleeper.stop(t)
	callsAfter, after := stopped.read()
	assert.Equal(t, calls, callsAfter, "no send begins after the lease")
	assert.Less(t, len(after), rows, "the rest of the batch was not sent")
	assert.Equal(t, distinct(o.messages()), distinct(append(after, delivered...)), "nothing is lost")
	assert.Equal(t, state, o.state(), "the late mark changes no row")
	said := sleeper.log.String()
	if strings.Contains(said, "completion failed") { // its time is that of the lease: on a busy machine it may be over before the answer
		return
	}
	assert.Contains(t, said, "lease lost")
	assert.Regexp(t, `msg="processor stopped" lease_lost=[1-9]`, said)
}

// A relay is killed with a claimed key: the key waits until the lease has ended, and is then delivered;
// other keys do not wait.
func TestFault01OwnerOfAKeyIsKilled(t *testing.T) {
	t.Parallel()
	onServers(t, testFault01OwnerOfAKeyIsKilled)
}

func testFault01OwnerOfAKeyIsKilled(t *testing.T, p *place) {
	t.Helper()
	o := newOutbreak(p)
	o.insertOfKey("order-1", 10)
	first, second := newRecord(t, "first"), newRecord(t, "second")
	victim := first.start(p, takesItsTime)
	eventually(t, func() bool { calls, _ := first.read(); return calls > 0 })
	victim.kill()
	_, sent := first.read()
	require.Empty(t, sent, "killed before the broker had anything")
	o.hold()

	heir := second.start(p, "")
	o.insertOfKey("order-2", 1)
	eventually(t, func() bool { return o.count("status = 'published' AND ordering_key = 'order-2'") == 1 })
	assert.Zero(t, o.count("status = 'published' AND ordering_key = 'order-1'"), "the lease stands")
	o.expire()
	eventually(t, func() bool { return o.count("finished_at IS NULL") == 0 })
	heir.stop(t)
	assert.Equal(t, 11, o.count("status = 'published'"))
	_, delivered := second.read()
	assert.Equal(t, distinct(o.messages()), distinct(delivered))
	assert.Len(t, delivered, 11, "once each")
}
