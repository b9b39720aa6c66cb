package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// keySlots is how many rows the table of key slots has.
const keySlots = 1024

const rowsProperty = "number of rows"

// wanted are the facts of this store's tables after the first steps.
func (s *Store) wanted(first int) (schemacheck.Facts, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	want, err := schemacheck.Wanted(schemacheck.MySQL, steps[:first]...)
	return want.With(schemacheck.Table+s.table+"_key_slots", rowsProperty, strconv.Itoa(keySlots)), err
}

// facts reads what the wanted tables are made of.
func (s *Store) facts(ctx context.Context, tables []string) (live schemacheck.Facts, err error) {
	for n, table := range tables {
		owner := ""
		if n > 0 {
			owner = " of " + table
		}
		found, err := s.catalog(ctx, table, owner)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			continue
		}
		made := schemacheck.Reading{Dialect: schemacheck.MySQL, Name: table, Owner: owner}
		if err := s.statement(ctx, table, &made); err != nil {
			return nil, err
		}
		live = append(live, found.Complete(made.Facts)...)
	}
	if !live.Has(schemacheck.Table + s.table + "_key_slots") {
		return live, nil
	}
	slots, err := s.list(ctx, s.db, "slots", nil)
	if err != nil {
		return nil, err
	}
	return live.With(schemacheck.Table+s.table+"_key_slots", rowsProperty, strconv.FormatInt(slots[0], 10)), nil
}

// catalog reads the facts of a table for which the catalog has the same words everywhere.
func (s *Store) catalog(ctx context.Context, table, owner string) (live schemacheck.Facts, err error) {
	given := args{"name": table}
	if database, name, found := strings.Cut(table, "."); found {
		given = args{"database": database, "name": name}
	}
	err = s.query(ctx, s.db, "facts", given, func(scan scanner) error {
		var kind, object, property string
		var value sql.NullString
		if err := scan(&kind, &object, &property, &value); err != nil || !value.Valid {
			return err
		}
		if kind == "table" {
			object = schemacheck.Table + table
		} else {
			object = "column " + object + owner
		}
		if property == "type" {
			value.String = schemacheck.MySQLType(value.String)
		}
		live = live.With(object, property, value.String)
		return nil
	})
	return live, err
}

// statement reads the rest from the statement that would make a table. It holds expressions as the
// server would read them again; information_schema has them with escapes that differ from version to
// version, or shows them to owners alone.
func (s *Store) statement(ctx context.Context, table string, into *schemacheck.Reading) error {
	rows, err := s.db.QueryContext(ctx, "SHOW CREATE TABLE "+table)
	if err != nil {
		return err
	}
	defer rows.Close() // Err tells
	for rows.Next() {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		values := make([]sql.RawBytes, len(columns)) // of a view there are more
		targets := make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if columns[1] != "Create Table" {
			continue
		}
		if err := into.Read(string(values[1])); err != nil {
			return err
		}
	}
	return rows.Err()
}

// scratchPatience is how long the removal of a scratch database may take.
const scratchPatience = 10 * time.Second

// CompareWithScratch implements driver.Store. The scratch is a database, which is dropped afterwards.
func (s *Store) CompareWithScratch(ctx context.Context) ([]string, error) {
	database := driver.ScratchName()
	scratch, err := New(s.db, database+"."+dbtable.Bare(s.table))
	if err != nil {
		return nil, err
	}
	want, err := scratch.made(ctx, database)
	if numbered(err, 1044, 1142, 1227) {
		err = fmt.Errorf("%w: the user needs all rights on `fanout\\_scratch\\_%%`.*", err)
	}
	if err != nil {
		return nil, err
	}
	want = want.Renamed(scratch.table, s.table)
	live, err := s.facts(ctx, want.Tables())
	if err != nil {
		return nil, err
	}
	return schemacheck.TextDifferences(want, live), nil
}

// made makes the tables in a new database, reads them and drops it.
func (s *Store) made(ctx context.Context, database string) (facts schemacheck.Facts, err error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	created := false
	defer func() { // also where the server creates it and the answer is lost
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scratchPatience)
		defer cancel()
		if _, problem := s.db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+database); problem != nil && created {
			err = errors.Join(err, fmt.Errorf("drop the database %s: %w", database, problem))
		}
	}()
	if _, err := s.db.ExecContext(ctx, "CREATE DATABASE "+database); err != nil {
		return nil, err
	}
	created = true
	for _, step := range steps {
		for _, part := range parts(step) {
			if _, err := s.db.ExecContext(ctx, part.SQL); err != nil {
				return nil, err
			}
		}
	}
	want, err := s.wanted(len(steps))
	if err != nil {
		return nil, err
	}
	return s.facts(ctx, want.Tables())
}
