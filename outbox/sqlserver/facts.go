package sqlserver

import (
	"context"
	"database/sql"
	_ "embed" // for the facts that are wanted
	"errors"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// wantedText is what the migrations make, as sql/facts.sql sees it. A test reads it out of the
// migrations and writes the file.
//
//go:embed schema.facts
var wantedText string

// wanted are the facts of this store's tables.
func (s *Store) wanted() (schemacheck.Facts, error) {
	return schemacheck.Parse(driver.RenderSQL(wantedText, s.table))
}

// facts reads what the wanted tables are made of, as far as it can be compared with what is wanted.
func (s *Store) facts(ctx context.Context, want schemacheck.Facts) (schemacheck.Facts, error) {
	var live schemacheck.Facts
	err := s.query(ctx, s.sql.facts, tablesArg(want), resultSets{"fanout_object": func(rows *sql.Rows) error {
		var object, property, value string
		err := rows.Scan(&object, &property, &value)
		live = live.With(object, property, value)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return s.comparable(ctx, want, live)
}

// tablesArg hands the names of the tables to a batch, as JSON. They have been checked: there is
// nothing to escape.
func tablesArg(want schemacheck.Facts) []any {
	return []any{sql.Named("tables", `["`+strings.Join(want.Tables(), `","`)+`"]`)}
}

// comparable leaves out, or replaces by what is wanted, what says nothing about the schema:
// collations and lock escalation that are left to the database or the owner (the catalog always
// names one), constraints that this user may not see, and expressions in other words.
func (s *Store) comparable(ctx context.Context, want, live schemacheck.Facts) (schemacheck.Facts, error) {
	hidden := false
	for i := range live {
		wanted := want.Find(live[i].Name)
		live[i].Properties = slices.DeleteFunc(live[i].Properties, func(p schemacheck.Property) bool {
			hidden = hidden || p.Name == "definitions"
			return p.Name == "definitions" || leftToOthers(p.Name) && wanted.Value(p.Name) == schemacheck.None
		})
		for j, property := range live[i].Properties {
			if property.Name != "computed" || property.Value == schemacheck.Unknown || wanted.Value("computed") == schemacheck.None {
				continue
			}
			same, err := s.same(ctx, property.Value, wanted.Value("computed"))
			if err != nil {
				return nil, err
			}
			if same {
				live[i].Properties[j].Value = wanted.Value("computed")
			}
		}
	}
	for _, object := range want {
		if hidden && strings.HasPrefix(object.Name, "constraint ") && !live.Has(object.Name) {
			live = append(live, object)
		}
	}
	return live, nil
}

// leftToOthers is true for properties that the catalog has for everything, whether or not the
// migrations say something about them.
func leftToOthers(property string) bool {
	return property == "collation" || property == "lock escalation"
}

// same reports whether two expressions of a computed column mean the same: by their words, or else
// by what they make of rows. An expression that cannot be asked, because it needs other columns
// than ours, say, is another one.
func (s *Store) same(ctx context.Context, live, want string) (bool, error) {
	if schemacheck.Fold(live) == schemacheck.Fold(want) {
		return true, nil
	}
	var different sql.NullInt64
	text := strings.NewReplacer("{{live}}", live, "{{want}}", want).Replace(s.sql.compare)
	err := s.query(ctx, text, nil, resultSets{"fanout_different": func(rows *sql.Rows) error { return rows.Scan(&different) }})
	if refused := new(mssql.Error); errors.As(err, refused) && !transient(err) {
		return false, nil
	}
	return err == nil && different.Valid && different.Int64 == 0, err
}
