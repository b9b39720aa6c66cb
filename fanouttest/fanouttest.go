// Package fanouttest helps with the unit tests of an application that raises events. It answers,
// with no broker and no relay:
//
//   - which events would this code emit? [Emits] runs it, rolls it back, and tells.
//   - which events would this transaction emit if it committed now? [WouldEmit].
//   - which events are pending on this aggregate? That is [uow.Pending], which needs no database at all.
//
// [Open] makes a database for one test: SQLite, with the plugin and the outbox table. Emits and
// WouldEmit work on every handle with the plugin, so also on a PostgreSQL or SQL Server of your
// own.
//
// What the helpers return is what gormplugin would write at the commit: sealed, routed and encoded,
// byte for byte. They differ from a commit in this: nothing is written to the outbox, functions
// given to AfterCommit do not run, the relay is not woken, and what gormplugin.WithStrict would
// refuse fails the test.
package fanouttest

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
)

// TB is what the helpers need of a test. *testing.T, *testing.B and *testing.F have it, and so has
// the T of most test frameworks. Fatalf must not return: it ends the goroutine, so call the helpers
// from that of the test.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(f func())
	TempDir() string
}

// errRollBack ends the transaction of Emits.
var errRollBack = errors.New("fanouttest: roll back")

// Emits runs block in a transaction on db, returns the events that its commit would have written,
// in the order in which they were raised, and rolls it back. db is any handle with the plugin.
// Where it is a transaction itself, the block runs under a savepoint, and only what the block added
// is returned: events raised earlier count when the block is what saves their aggregate.
//
// The database is as before, while Go values are not: keys that were generated stay in them, and
// the aggregates keep their events pending, so that a later save emits them once more, as the same
// messages.
//
// The test fails when the block returns an error, and when an event could not be written: its type
// is not registered, it cannot be encoded, its payload is over the limit, or it is addressed to an
// unknown broker. A panic, and a FailNow in the block, roll back and go on.
//
// What the block commits by itself, on a handle other than tx, is neither rolled back nor returned.
func Emits(t TB, db *gorm.DB, block func(tx *gorm.DB) error) []Event {
	t.Helper()
	handle, err := gormplugin.Wrap(db)
	if err != nil {
		t.Fatalf("fanouttest: %v", err)
	}
	flat := handle.DisableNestedTransaction
	session := handle.Session(&gorm.Session{})
	session.DisableNestedTransaction = false // the block needs its savepoint; the setting is the session's own
	before, err := idsIn(session)
	if err != nil {
		t.Fatalf("fanouttest: before the block: %v", err)
	}
	var captured []gormplugin.Captured
	err = session.Transaction(func(tx *gorm.DB) error {
		tx.DisableNestedTransaction = flat
		if err := block(tx); err != nil {
			return fmt.Errorf("the block failed: %w", err)
		}
		var err error
		if captured, err = gormplugin.Preview(tx); err != nil {
			return fmt.Errorf("the commit would fail: %w", err)
		}
		return errRollBack
	})
	if !errors.Is(err, errRollBack) {
		t.Fatalf("fanouttest: %v", err)
	}
	return eventsOf(t, captured, before)
}

// WouldEmit returns the events that the transaction of tx would write if it committed now, in the
// order in which they were raised. It changes nothing. tx is the transaction, or a savepoint in it:
// the answer is about the whole transaction. It is for tests that run a service in a transaction
// and roll that back in the end.
//
// The test fails when tx is no transaction of GORM's on a handle with the plugin, and when an event
// could not be written; see [Emits].
func WouldEmit(t TB, tx *gorm.DB) []Event {
	t.Helper()
	captured, err := gormplugin.Preview(tx)
	if err != nil {
		t.Fatalf("fanouttest: %v", err)
	}
	return eventsOf(t, captured, nil)
}

// idsIn lists the messages that the transaction of db, if it is one, would write already.
func idsIn(db *gorm.DB) (map[uuid.UUID]struct{}, error) {
	if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); !ok {
		return nil, nil //nolint:nilnil // outside a transaction there is nothing yet, which is no error
	}
	captured, err := gormplugin.Preview(db)
	if err != nil {
		return nil, err
	}
	ids := make(map[uuid.UUID]struct{}, len(captured))
	for i := range captured {
		ids[captured[i].Rows[0].MessageID] = struct{}{}
	}
	return ids, nil
}

// InExample runs f with something that takes the place of a *testing.T, which example functions do
// not have. Where a test would fail, it panics. When f has returned, the database of [Open] is
// closed and removed.
func InExample(f func(t TB)) {
	t := new(exampleT)
	defer t.cleanUp()
	f(t)
}

// exampleT is the TB of an example.
type exampleT struct{ cleanups []func() }

// Helper does nothing.
func (*exampleT) Helper() {}

// Fatalf panics.
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Cleanup keeps f for the end of the example.
func (t *exampleT) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// TempDir makes a folder that is removed in the end.
func (t *exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "fanouttest")
	if err != nil {
		t.Fatalf("fanouttest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// cleanUp works from the last to the first, as tests do.
func (t *exampleT) cleanUp() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}
