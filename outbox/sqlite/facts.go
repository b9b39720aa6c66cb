package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
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

// evaluation is how the expressions of tables are tried out. SQLite has no functions but its own and
// those of this process, and a SELECT of values writes nothing.
func (s *Store) evaluation() *schemacheck.Database {
	return &schemacheck.Database{
		Dialect: schemacheck.SQLite,
		Shard:   driver.ShardOf(outbox.SQLite),
		Ask: func(ctx context.Context, query string) (answers []schemacheck.Answer, err error) {
			err = s.read(ctx, func(rows *sql.Rows) error {
				var answer schemacheck.Answer
				err := rows.Scan(&answer.Expression, &answer.Row)
				answers = append(answers, answer)
				return err
			}, query)
			return answers, err
		},
		Refused: refused,
	}
}

// refused is true for an error about a statement itself. Drivers that tell no code tell SQLite's
// words.
func refused(err error) bool {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code()&0xff == 1 // SQLITE_ERROR
	}
	return slices.ContainsFunc([]string{"no such", "syntax error", "unrecognized token", "incomplete input", "wrong number of arguments", "misuse of"},
		func(words string) bool { return strings.Contains(err.Error(), words) })
}
