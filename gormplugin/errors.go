package gormplugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// PartialBatchError is the answer to a statement that wrote only some of the aggregates it was
// given: the database does not say which, so it is not known whose events happened. A single
// statement is rolled back; a transaction cannot commit after it, unless it goes back to a
// savepoint. Then write the aggregates one by one, or have the statement return their keys, on
// PostgreSQL and SQLite:
//
//	tx.Clauses(clause.Returning{Columns: []clause.Column{{Name: "id"}}}).Delete(orders)
type PartialBatchError struct {
	// Aggregate is the name of the type.
	Aggregate string
	// Given is the number of rows that the aggregates stand for. Two of them may stand for one row.
	Given int
	// Affected is the number of rows that were written.
	Affected int64
}

// Error implements error.
func (e *PartialBatchError) Error() string {
	said := fmt.Sprintf("%d of %d rows of %s were written, and which ones is not known", e.Affected, e.Given, e.Aggregate)
	if e.Affected >= int64(e.Given) { // MySQL
		said = fmt.Sprintf("of %d rows of %s it is not known which ones were there already, since the database counts and returns these, too", e.Given, e.Aggregate)
	}
	return "gormplugin: " + said + ", so their events cannot be distinguished: roll back and write them one by one, or have the statement return " +
		"their keys by clause.Returning (PostgreSQL, SQLite); on MySQL, INSERT without a conflict clause and see to gorm.ErrDuplicatedKey; where these are rows of a join table, " +
		"append to an owner that does not hold the members which are there, or create the rows of the join table yourself"
}

// PendingError is the answer of a strict plugin to a commit that would leave events behind.
type PendingError struct {
	// Aggregates is the number of pending events by the aggregate's type.
	Aggregates map[string]int
}

// Error implements error.
func (e *PendingError) Error() string {
	var left []string
	for _, name := range slices.Sorted(maps.Keys(e.Aggregates)) {
		left = append(left, fmt.Sprintf("%s (%d)", name, e.Aggregates[name]))
	}
	return fmt.Sprintf("gormplugin: strict: the transaction was rolled back, for events would be left pending on %s: "+
		"no statement wrote the aggregate, or the one that was to write it changed no row",
		strings.Join(left, ", "))
}

// CaptureError wraps what went wrong with one event. The transaction is rolled back and the event
// stays pending.
type CaptureError struct {
	// Event is the Go type of the event, Aggregate that of the aggregate that raised it; the latter
	// may be empty.
	Event, Aggregate string
	Err              error
}

// Error implements error.
func (e *CaptureError) Error() string {
	if e.Aggregate == "" {
		return fmt.Sprintf("gormplugin: capture %s: %v", e.Event, e.Err)
	}
	return fmt.Sprintf("gormplugin: capture %s raised by %s: %v", e.Event, e.Aggregate, e.Err)
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *CaptureError) Unwrap() error { return e.Err }
