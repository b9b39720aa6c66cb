package outbox

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Migration is one step of the schema, with the table's name filled in. Steps are applied in the order of their
// versions, each in a transaction of its own where the database allows that, and recorded in "<table>_migrations".
type Migration struct {
	// Version counts from 1 without gaps.
	Version int
	// Name is the file's name without version and ending, e.g. "outbox".
	Name string
	// SQL is the step's text, ready to run; it may hold several statements.
	SQL string
}

// String is the step's name in answers and messages, e.g. "0001_outbox".
func (m Migration) String() string { return fmt.Sprintf("%04d_%s", m.Version, m.Name) }

// ApplyMigrations calls apply for each step whose version is not among those done, in order, and returns the names of the
// steps that it applied. It stops at the first error.
func ApplyMigrations(steps []Migration, done []int, apply func(Migration) error) ([]string, error) {
	var applied []string
	for _, step := range steps {
		if slices.Contains(done, step.Version) {
			continue
		}
		if err := apply(step); err != nil {
			return nil, fmt.Errorf("step %s: %w", step, err)
		}
		applied = append(applied, step.String())
	}
	return applied, nil
}

// Migrations reads the steps from files named like 0001_outbox.sql at the root of files.
func Migrations(files fs.FS, table string) ([]Migration, error) {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err != nil {
		return nil, fmt.Errorf("outbox: list migrations: %w", err)
	}
	steps := make([]Migration, 0, len(names))
	for i, name := range names {
		number, rest, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("outbox: migration %s: want version %04d here", name, i+1)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("outbox: read migration %s: %w", name, err)
		}
		steps = append(steps, Migration{Version: version, Name: rest, SQL: RenderSQL(string(text), table)})
	}
	return steps, nil
}

// named finds the names that a statement gives to its parts.
var named = regexp.MustCompile(`(?m)^\s*(?:WITH |\), |, )(\w+) AS (?:MATERIALIZED )?\(`)

// CheckTableAmong refuses a table name without a schema that is also the name of a part (WITH name AS) of one of the SQL files in a
// folder: in that statement it would mean the part.
func CheckTableAmong(table string, files fs.FS) error {
	return fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		for _, match := range named.FindAllSubmatch(text, -1) {
			if strings.EqualFold(string(match[1]), table) {
				return fmt.Errorf("outbox: table name %q has a meaning of its own in the store's statements: choose another one, or put its schema in front", table)
			}
		}
		return nil
	})
}

// RenderSQL fills the table's name into a SQL text: {{table}} is the name as configured, {{name}} the name without its
// schema, from which the names of indexes and constraints are made. The name must have passed [CheckTable].
func RenderSQL(text, table string) string {
	name := table[strings.LastIndexByte(table, '.')+1:]
	return strings.NewReplacer("{{table}}", table, "{{name}}", name).Replace(text)
}
