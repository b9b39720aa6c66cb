package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
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

// evaluation is how the expressions of tables are tried out. They are the owner's, and run with the
// rights of whoever asks for the check, as they do in each of a relay's statements. A SELECT of
// values writes nothing, and functions that are not the server's own, which an expression names
// with their schema, are not called.
func (s *Store) evaluation() *schemacheck.Database {
	return &schemacheck.Database{
		Dialect: schemacheck.SQLServer,
		Shard:   driver.ShardOf(outbox.SQLServer),
		Ask: func(ctx context.Context, query string) (answers []schemacheck.Answer, err error) {
			err = s.query(ctx, query, nil, resultSets{"fanout_expression": func(rows *sql.Rows) error {
				var answer schemacheck.Answer
				err := rows.Scan(&answer.Expression, &answer.Row)
				answers = append(answers, answer)
				return err
			}})
			return answers, err
		},
		Refused: func(err error) bool {
			refused := new(mssql.Error)
			return errors.As(err, refused) && !transient(err)
		},
	}
}
