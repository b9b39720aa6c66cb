package driver

import (
	"crypto/rand"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Remedies for a schema that differs.
const (
	remedyMigrate = `run "fanout migrate"`
	remedyForeign = `tables are there that "fanout migrate" has no record of, and they are not what it makes; nothing was changed. If another tool made them, bring them, ` +
		`with that tool, to what "fanout migrate --print" shows, and run "fanout migrate" again, which records them; drop what a broken-off run has left; ` +
		`if they are not the outbox's, rename them, or choose another name under outbox.table`
	remedyTool   = `no record of its steps can be read here, so bring it, with the tool that made it, to what "fanout migrate --print" shows`
	remedyByHand = `"fanout migrate" has no step left for it, so it was changed by hand: bring it back to what "fanout migrate --print" shows`
)

// A LiveSchema is the state of a store's schema.
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
	default:
		return &admin.SchemaError{Differences: differences, Remedy: remedyByHand}
	}
}

// ScratchName returns a fresh name for what [Store.CompareWithScratch] makes.
func ScratchName() string { return "fanout_scratch_" + strings.ToLower(rand.Text()[:12]) }
