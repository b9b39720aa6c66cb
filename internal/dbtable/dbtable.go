// Package dbtable is what the tables of the outbox and of the inbox have in common: names that may
// stand in SQL texts, texts with the name filled in, and migrations. Errors have no package in
// front; the caller's is put there.
package dbtable

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// pattern allows an optional schema. The limit leaves room for the suffixes of indexes and
// auxiliary tables within the 63 bytes of a PostgreSQL identifier.
var pattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,47}$`)

// CheckName reports whether name can be the name of a table: letters, digits and underscores, at
// most 48 of them, with an optional schema in front. Table names become part of SQL texts, so
// nothing else is let through. The example is for the error.
func CheckName(name, example string) error {
	if !pattern.MatchString(name) {
		return fmt.Errorf("table name %q: use letters, digits and underscores (at most 48), with an optional schema as in \"app.%s\"", name, example)
	}
	return nil
}

// named finds the names that a statement gives to its parts.
var named = regexp.MustCompile(`(?m)^\s*(?:WITH (?:RECURSIVE )?|\), |, )(\w+)(?: \([\w, ]+\))? AS (?:MATERIALIZED )?\(`)

// CheckAmong refuses a table name without a schema that is also the name of a part (WITH name AS)
// of one of the SQL files in a folder: in that statement it would mean the part.
func CheckAmong(table string, files embed.FS, folder string) error {
	parts, ok := partsOf.Load(embedded{files, folder})
	if !ok {
		names, err := partNames(files, folder)
		if err != nil {
			return fmt.Errorf("read the statements: %w", err)
		}
		parts, _ = partsOf.LoadOrStore(embedded{files, folder}, names)
	}
	if parts.(map[string]bool)[strings.ToLower(table)] { //nolint:forcetypeassert // nothing else is stored
		return fmt.Errorf("table name %q also names a part of a statement: choose another one, or put its schema in front", table)
	}
	return nil
}

type embedded struct {
	files  embed.FS
	folder string
}

// partsOf keeps the names of parts by folder, since the tables of tenants are checked at each visit.
var partsOf sync.Map

func partNames(files embed.FS, folder string) (map[string]bool, error) {
	names := map[string]bool{}
	err := fs.WalkDir(files, folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		for _, match := range named.FindAllSubmatch(text, -1) {
			names[string(match[1])] = true // in small letters
		}
		return err
	})
	return names, err
}

// Render fills the table's name into a SQL text: {{table}} is the name as configured, {{name}} the
// name without its schema, from which the names of indexes and constraints are made. The name must
// have passed [CheckName].
func Render(text, table string) string {
	return strings.NewReplacer("{{table}}", table, "{{name}}", Bare(table)).Replace(text)
}

// Bare is a table's name without its schema.
func Bare(table string) string { return table[strings.LastIndexByte(table, '.')+1:] }

// A Migration is one step of a schema, with the table's name filled in. Steps are applied in the
// order of their versions, each in a transaction of its own where the database allows that, and
// recorded in "<table>_migrations".
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

// Migrations reads the steps from files named like 0001_outbox.sql at the root of files.
func Migrations(files fs.FS, table string) ([]Migration, error) {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	steps := make([]Migration, 0, len(names))
	for i, name := range names {
		number, rest, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s: want version %04d here", name, i+1)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", name, err)
		}
		steps = append(steps, Migration{Version: version, Name: rest, SQL: Render(string(text), table)})
	}
	return steps, nil
}
