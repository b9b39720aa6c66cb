package admin

import (
	"strings"

	"github.com/gorm-fanout/fanout/outbox"
)

// A SchemaError says how a live schema differs from what this version needs. It wraps
// [outbox.ErrSchema].
type SchemaError struct {
	// Differences, each for people to read: "column shard: type is integer, want smallint".
	Differences []string
	// Remedy says what to do.
	Remedy string
}

// Error is one line with all differences.
func (e *SchemaError) Error() string {
	return "the outbox schema is not up to date: " + e.Remedy + " (" + strings.Join(e.Differences, "; ") + ")"
}

// Unwrap returns ErrSchema.
func (e *SchemaError) Unwrap() error { return outbox.ErrSchema }
