package driver

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// What to do about a schema that is not as it should be.
const (
	remedyMigrate = `run "fanout migrate"`
	remedyForeign = `tables are there that "fanout migrate" has no record of, and they are not what it makes; nothing was changed. If another tool made them, bring them, ` +
		`with that tool, to what "fanout migrate --print" shows, and run "fanout migrate" again, which records them; drop what a broken-off run has left; ` +
		`if they are not the outbox's, rename them, or choose another name under outbox.table`
	remedyTool    = `no record of its steps can be read here, so bring it, with the tool that made it, to what "fanout migrate --print" shows`
	remedyUnclear = `the server refuses to evaluate it, so it may be as it should be: compare it with what "fanout migrate --print" shows, bring it back ` +
		`if it differs, and report the server's version and its error if it does not`
	remedyByHand = `"fanout migrate" has no step left for it, so it was changed by hand: bring it back to what "fanout migrate --print" shows`
)

// A LiveSchema is what a store has found out about its schema.
type LiveSchema struct {
	// Differences from what is wanted.
	Differences []string
	// Exists is true when there is a table of the outbox's name.
	Exists bool
	// Recorded is true when [Schema.Migrate] keeps the record of the steps, and not some other
	// tool. Versions are those applied.
	Recorded bool
	Versions []int
}

// Err is nil for a schema that is up to date with these steps, and otherwise a [*admin.SchemaError].
func (l LiveSchema) Err(steps []Migration) error {
	differences := slices.Clone(l.Differences)
	behind := !l.Recorded && !l.Exists
	for _, step := range steps {
		if l.Recorded && !slices.Contains(l.Versions, step.Version) {
			differences = append(differences, "step "+step.String()+": not applied")
			behind = true
		}
	}
	switch {
	case len(differences) == 0:
		return nil
	case behind:
		return &admin.SchemaError{Differences: differences, Remedy: remedyMigrate}
	case !l.Recorded:
		return &admin.SchemaError{Differences: differences, Remedy: remedyTool}
	case !slices.ContainsFunc(differences, func(difference string) bool { return !strings.Contains(difference, "("+schemacheck.Unevaluated) }):
		return &admin.SchemaError{Differences: differences, Remedy: remedyUnclear}
	default:
		return &admin.SchemaError{Differences: differences, Remedy: remedyByHand}
	}
}

// ShardOf is how [schemacheck.Database] learns in which shard a row belongs.
func ShardOf(dialect outbox.Dialect) func(key string, id uuid.UUID, priority int) int {
	return func(key string, id uuid.UUID, priority int) int {
		return dialect.Shard(&outbox.Row{OrderingKey: key, MessageID: id, Priority: priority})
	}
}
