package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/sqltx"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
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
		if err := s.made(ctx, table, &made); err != nil {
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

// made reads the rest out of the statement that would make a table. It holds expressions as the
// server would read them again; information_schema has them with escapes that differ from version to
// version, or shows them to owners alone.
func (s *Store) made(ctx context.Context, table string, into *schemacheck.Reading) error {
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

// evaluation is how the expressions of tables are tried out. They are the owner's, and run with the
// rights of whoever asks for the check, as they do in each of a relay's statements: so nothing can be
// written here. The time is that of a zone in which a clock that does not tell UTC goes wrong.
func (s *Store) evaluation() *schemacheck.Database {
	return &schemacheck.Database{
		Dialect: schemacheck.MySQL,
		Shard:   driver.ShardOf(outbox.MySQL),
		Ask: func(ctx context.Context, query string) (answers []schemacheck.Answer, err error) {
			conn, err := s.db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			defer func() { _ = conn.Close() }() // it goes back into the pool, or is closed already
			if _, err := conn.ExecContext(ctx, "SET @fanout_zone = @@time_zone, time_zone = '+05:45', "+schemacheck.MySQLText); err != nil {
				return nil, err
			}
			defer func() {
				if _, err := conn.ExecContext(context.WithoutCancel(ctx), "SET time_zone = @fanout_zone"); err != nil {
					discard(conn)
				}
			}()
			err = sqltx.Run(ctx, conn, &sql.TxOptions{ReadOnly: true}, func(tx *sql.Tx) error {
				rows, err := tx.QueryContext(ctx, query)
				if err != nil {
					return err
				}
				defer rows.Close() // Err tells
				for rows.Next() {
					var answer schemacheck.Answer
					if err := rows.Scan(&answer.Expression, &answer.Row); err != nil {
						return err
					}
					answers = append(answers, answer)
				}
				return rows.Err()
			})
			return answers, err
		},
		Refused: func(err error) bool {
			refused := new(mysql.MySQLError)
			return errors.As(err, &refused) && brokenOff(err) == contention.None
		},
	}
}
