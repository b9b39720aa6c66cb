package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/sqltx"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// wanted are the facts of this store's tables.
func (s *Store) wanted() (schemacheck.Facts, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	return schemacheck.Wanted(schemacheck.SQLServer, steps...)
}

// facts reads what the wanted tables are made of, as far as it can be compared with what is wanted.
func (s *Store) facts(ctx context.Context, on querier, want schemacheck.Facts) (schemacheck.Facts, error) {
	var live schemacheck.Facts
	err := queryOn(ctx, on, s.sql.facts, tablesArg(want), resultSets{"fanout_object": func(rows *sql.Rows) error {
		var object, property, value string
		err := rows.Scan(&object, &property, &value)
		live = live.With(object, property, value)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return comparableFacts(want, live), nil
}

// tablesArg hands the names of the tables to a batch, as JSON. They have been checked: there is
// nothing to escape.
func tablesArg(want schemacheck.Facts) []any {
	return []any{sql.Named("tables", `["`+strings.Join(want.Tables(), `","`)+`"]`)}
}

// comparableFacts leaves out, or replaces by what is wanted, what says nothing about the schema:
// collations and lock escalation that are left to the database or the owner (the catalog always
// names one), and constraints that this user may not see.
func comparableFacts(want, live schemacheck.Facts) schemacheck.Facts {
	hidden := false
	for i := range live {
		wanted := want.Find(live[i].Name)
		live[i].Properties = slices.DeleteFunc(live[i].Properties, func(p schemacheck.Property) bool {
			hidden = hidden || p.Name == "definitions"
			return p.Name == "definitions" || leftToOthers(p.Name) && wanted.Value(p.Name) == schemacheck.None
		})
	}
	for _, object := range want {
		if hidden && strings.HasPrefix(object.Name, "constraint ") && !live.Has(object.Name) {
			live = append(live, object)
		}
	}
	return live
}

// leftToOthers is true for properties that the catalog has for everything, whether or not the
// migrations say something about them.
func leftToOthers(property string) bool {
	return property == "collation" || property == "lock escalation"
}

// errRollBack ends a transaction without a failure.
var errRollBack = errors.New("roll back")

// CompareWithScratch implements driver.Store. The scratch tables stand beside the store's own, since
// constraints are named per schema, in a transaction that is rolled back.
func (s *Store) CompareWithScratch(ctx context.Context) ([]string, error) {
	bare, name := bareName(s.table), driver.ScratchName()
	scratch, err := New(s.db, strings.TrimSuffix(s.table, bare)+name)
	if err != nil {
		return nil, err
	}
	steps, err := Migrations(scratch.table)
	if err != nil {
		return nil, err
	}
	want, err := scratch.wanted()
	if err != nil {
		return nil, err
	}
	err = sqltx.Run(ctx, s.db, nil, func(tx *sql.Tx) error {
		for _, step := range steps {
			if _, err := tx.ExecContext(ctx, step.SQL); err != nil {
				return err
			}
		}
		if want, err = scratch.facts(ctx, tx, want); err != nil {
			return err
		}
		return errRollBack
	})
	switch {
	case errors.Is(err, errRollBack):
	case numbered(err, 262, 2760): // no permission to create, or not in this schema
		return nil, fmt.Errorf("%w: the user needs CREATE TABLE, and ALTER on the schema", err)
	default:
		return nil, err
	}
	want = want.Renamed(name, bare)
	live, err := s.facts(ctx, s.db, want)
	switch {
	case err != nil:
		return nil, err
	case slices.ContainsFunc(slices.Concat(want, live), schemacheck.Object.Hidden):
		return nil, errors.New("the server hides expressions from this user: the user needs VIEW DEFINITION on the tables")
	}
	return schemacheck.TextDifferences(want, live), nil
}
