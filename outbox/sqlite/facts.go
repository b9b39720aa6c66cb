package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
)

// wanted are the facts of this store's tables after the first steps. SQLite's catalog names them
// without their schema.
func (s *Store) wanted(first int) (schemacheck.Facts, error) {
	steps, err := Migrations(bareName(s.table))
	if err != nil {
		return nil, err
	}
	return schemacheck.Wanted(schemacheck.SQLite, steps[:first]...)
}

func bareName(table string) string { return table[strings.LastIndexByte(table, '.')+1:] }

// facts reads what the named tables are made of. Pragmas tell what they can, and the statements that
// made tables and indexes the rest.
func (s *Store) facts(ctx context.Context, tables []string) (schemacheck.Facts, error) {
	names, err := json.Marshal(tables)
	if err != nil {
		return nil, err
	}
	var (
		live schemacheck.Facts
		made = schemacheck.Reading{Dialect: schemacheck.SQLite}
	)
	err = s.read(ctx, func(rows *sql.Rows) error {
		var object, property, value string
		if err := rows.Scan(&object, &property, &value); err != nil {
			return err
		}
		if property != "text" {
			live = live.With(object, property, value)
			return nil
		}
		if table, ok := strings.CutPrefix(object, schemacheck.Table); ok {
			made.Name, made.Owner = table, ""
			if !strings.EqualFold(table, tables[0]) {
				made.Owner = " of " + table
			}
		}
		return made.Read(value)
	}, s.sql.facts, sql.Named("tables", string(names)))
	return live.Complete(made.Facts), err
}

// CompareWithScratch implements driver.Store. SQLite keeps each statement as it was written, so the
// migrations themselves are the scratch.
func (s *Store) CompareWithScratch(ctx context.Context) ([]string, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	want, err := s.wanted(len(steps))
	if err != nil {
		return nil, err
	}
	live, err := s.facts(ctx, want.Tables())
	if err != nil {
		return nil, err
	}
	return schemacheck.TextDifferences(want, live), nil
}
