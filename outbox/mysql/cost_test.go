package mysql

import (
	"database/sql"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// TestCostOfABatch: completing a batch and claiming the next one is one commit, for which a server
// that is set to be safe waits for its disk, and a few statements, whatever the size of the batch:
// two that begin a transaction, the marks, the window, the shard's lock where order is on, the claim,
// the commit and the messages.
func TestCostOfABatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unordered, deleted bool
		want, left         int // left: of a batch that was completed
	}{{want: 8, left: 1}, {unordered: true, want: 7, left: 1}, {deleted: true, want: 8}, {unordered: true, deleted: true, want: 7}} {
		for _, size := range []int{1, 400} {
			if size == 1 && (c.unordered || c.deleted) && !testenv.Long() {
				continue
			}
			t.Run(fmt.Sprintf("%d rows, unordered %t, deleted %t", size, c.unordered, c.deleted), func(t *testing.T) {
				t.Parallel()
				db, store, claim := counted(t, 3*size)
				claim.Limit, claim.Window, claim.Unordered = size, size, c.unordered
				exchanged, err := store.Exchange(t.Context(), nil, claim)
				require.NoError(t, err)
				completion := &driver.Completion{Lease: exchanged.Batch.Lease, DeletePublished: c.deleted}
				for i := range exchanged.Batch.Messages {
					completion.Published = append(completion.Published, driver.Delivered{ID: exchanged.Batch.Messages[i].ID})
				}

				commits, statements := sessionStatus(t, db, "Com_commit"), sessionStatus(t, db, "Questions")
				exchanged, err = store.Exchange(t.Context(), completion, claim)
				require.NoError(t, err)
				require.Len(t, exchanged.Batch.Messages, size)
				require.Zero(t, exchanged.Completed.Lost)
				assert.Equal(t, c.want, sessionStatus(t, db, "Questions")-statements-1, "one is the test's")
				assert.Equal(t, 1, sessionStatus(t, db, "Com_commit")-commits)
				assert.Equal(t, []string{strconv.Itoa(c.left * size)}, column[string](t, db, "SELECT COUNT(*) FROM outbox_messages WHERE status = 'published'"))
				assert.Equal(t, []string{strconv.Itoa((2 + c.left) * size)}, column[string](t, db, "SELECT COUNT(*) FROM outbox_messages"))
			})
		}
	}
}

// sessionStatus is a counter of the session.
func sessionStatus(t *testing.T, db *sql.DB, name string) (value int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE '"+name+"'").Scan(&name, &value))
	return value
}

// What was published of a large batch is written by several statements, all of them or none: one
// commit, and each row has what the broker called it.
func TestCompletionOfALargeBatch(t *testing.T) {
	t.Parallel()
	const size = 2*listed + 1
	db, store, claim := counted(t, size)
	claim.Limit, claim.Window = size, size
	exchanged, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, exchanged.Batch.Messages, size)
	completion := &driver.Completion{Lease: exchanged.Batch.Lease}
	for i := range size {
		completion.Published = append(completion.Published, driver.Delivered{
			ID: exchanged.Batch.Messages[i].ID, BrokerMessageID: strconv.FormatInt(exchanged.Batch.Messages[i].ID, 10),
		})
	}

	commits, updates := sessionStatus(t, db, "Com_commit"), sessionStatus(t, db, "Com_update")
	exchanged, err = store.Exchange(t.Context(), completion, nil)
	require.NoError(t, err)
	assert.Zero(t, exchanged.Completed.Lost)
	assert.Equal(t, 1, sessionStatus(t, db, "Com_commit")-commits)
	assert.Equal(t, 3, sessionStatus(t, db, "Com_update")-updates)
	assert.Equal(t, []string{strconv.Itoa(size)}, column[string](t, db, "SELECT COUNT(*) FROM outbox_messages WHERE status = 'published' AND broker_message_id = id"))
}

// counted is a store with rows of one key, and a claim of theirs. All that the store does is counted in
// one session.
func counted(t *testing.T, rows int) (*sql.DB, *Store, *driver.Claim) {
	t.Helper()
	db := openDB(t, with(testenv.MySQL(t), "interpolateParams=true"))
	db.SetMaxOpenConns(1)
	store := newStore(t, db, "")
	store.water.slow = time.Hour // a busy machine is slow, too
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	inserter, err := outbox.NewInserter(outbox.MySQL, "outbox_messages")
	require.NoError(t, err)
	list := make([]outbox.Row, rows)
	for i := range list {
		list[i] = outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T", OrderingKey: "key", Payload: []byte("{}")}
	}
	require.NoError(t, inserter.Insert(t.Context(), db, list))
	claim := &driver.Claim{Broker: "b", Lease: time.Minute, Worker: "w"}
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT shard FROM outbox_messages LIMIT 1").Scan(&claim.Shard))
	return db, store, claim
}
