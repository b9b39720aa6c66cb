package driver

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A Migration is one step of the schema, with the table's name filled in: Version counts from 1
// without gaps, Name is the file's name without version and ending, e.g. "outbox", and SQL is the
// step's text, ready to run; it may hold several statements. Its String is e.g. "0001_outbox".
// Steps are applied in the order of their versions, each in a transaction of its own where the
// database allows that, and recorded in "<table>_migrations".
type Migration = dbtable.Migration

// ApplyMigrations is [dbtable.Apply]: it applies the steps that are neither done nor there, and records
// them and those that are there.
func ApplyMigrations(steps []Migration, done, there []int, apply, record func(Migration) error) ([]string, error) {
	return dbtable.Apply(steps, done, there, apply, record)
}

// A Comparison is how a live schema differs from what some first steps make.
type Comparison = dbtable.Comparison

// Adopt returns the versions of the steps that another tool has applied, of which [Schema.Migrate] has
// only to make a record. Tables that no record says to be the outbox's, and that are not what the steps
// make, are a [*admin.SchemaError]; nothing may be changed then. compare is as in [dbtable.There].
func Adopt(steps []Migration, done []int, compare func(first []Migration) (Comparison, error)) ([]int, error) {
	there, strange, err := dbtable.There(steps, done, compare)
	if err == nil && len(strange) > 0 {
		err = &admin.SchemaError{Differences: strange, Remedy: remedyForeign}
	}
	return there, err
}

// NameTaken adds what to do to the error of a database whose step met an object of a name that it makes:
// of the outbox's own tables [Adopt] would have known.
func NameTaken(err error) error {
	return fmt.Errorf("%w: another tool is making the tables, or has an object of that name: run \"fanout migrate\" again when it has ended", err)
}

// Migrations reads the steps from files named like 0001_outbox.sql at the root of files.
func Migrations(files fs.FS, table string) ([]Migration, error) {
	steps, err := dbtable.Migrations(files, table)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return steps, nil
}

// ValidateTableAmong refuses a table name without a schema that is also the name of a part (WITH
// name AS) of one of the SQL files in a folder: in that statement it would mean the part.
func ValidateTableAmong(table string, files embed.FS, folder string) error {
	if err := dbtable.CheckAmong(table, files, folder); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}

// RenderSQL fills the table's name into a SQL text: {{table}} is the name as configured, {{name}}
// the name without its schema, from which the names of indexes and constraints are made. The name
// must have passed [outbox.ValidateTable].
func RenderSQL(text, table string) string { return dbtable.Render(text, table) }
