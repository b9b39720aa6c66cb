package mysql

import (
	"context"
	"database/sql"
	_ "embed" // for the facts that are wanted
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/internal/contention"
)

// wantedText is what the migrations make, as sql/facts.sql sees it. A test reads it from a server
// and writes the file.
//
//go:embed schema.facts
var wantedText string

// wanted are the facts of this store's tables.
func (s *Store) wanted() (schemacheck.Facts, error) {
	return schemacheck.Parse(driver.RenderSQL(wantedText, s.table))
}

// facts reads what the wanted tables are made of, as far as it can be compared with what is wanted:
// an expression in other words that means the same is the same.
func (s *Store) facts(ctx context.Context, want schemacheck.Facts) (schemacheck.Facts, error) {
	live, err := s.catalog(ctx, want.Tables())
	if err != nil {
		return nil, err
	}
	for i := range live {
		wanted := want.Find(live[i].Name)
		for j, property := range live[i].Properties {
			if property.Name != "generated" || wanted.Value("generated") == schemacheck.None {
				continue
			}
			same, err := s.same(ctx, property.Value, wanted.Value("generated"))
			if err != nil {
				return nil, err
			}
			if same {
				live[i].Properties[j].Value = wanted.Value("generated")
			}
		}
	}
	if !live.Has(schemacheck.Table + s.table + "_key_slots") {
		return live, nil
	}
	slots, err := s.list(ctx, s.db, "slots", nil)
	if err != nil {
		return nil, err
	}
	return live.With(schemacheck.Table+s.table+"_key_slots", "number of rows", strconv.FormatInt(slots[0], 10)), nil
}

// catalog reads the facts of tables. What belongs to the first one says nothing of its owner.
func (s *Store) catalog(ctx context.Context, tables []string) (live schemacheck.Facts, err error) {
	for n, table := range tables {
		database, name, found := strings.Cut(table, ".")
		if !found {
			database, name = "", table
		}
		owner := ""
		if n > 0 {
			owner = " of " + table
		}
		err := s.query(ctx, s.db, "facts", args{"database": database, "name": name}, func(scan scanner) error {
			var kind, object, property string
			var value sql.NullString
			if err := scan(&kind, &object, &property, &value); err != nil {
				return err
			}
			switch kind {
			case "table":
				object = schemacheck.Table + table
			case "column":
				object = "column " + object + owner
			default: // names of indexes and constraints begin with the table's, but for that of the primary key
				if object = kind + " " + object; strings.HasSuffix(object, " PRIMARY") {
					object += owner
				}
			}
			if text, ok := normal(property, value); ok {
				live = live.With(object, property, text)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return live, nil
}

var (
	width      = regexp.MustCompile(`^(tinyint|int|bigint)\((?:4|11|20)\)$`)
	introducer = regexp.MustCompile(`_utf8mb[34]\s*\\?'`)
)

// normal is a property in one form for all servers: MariaDB writes widths of numbers, quotes around
// texts, and NULL for no default.
func normal(property string, value sql.NullString) (text string, ok bool) {
	text = value.String
	switch {
	case !value.Valid:
		return "", false
	case property == "type":
		text = width.ReplaceAllString(text, "$1")
	case property == "default" && strings.EqualFold(text, "NULL"):
		return "", false
	case property == "default":
		text = strings.Trim(introducer.ReplaceAllString(text, "'"), `'\`)
		if text == "" {
			text = "''"
		}
	}
	return text, true
}

// same reports whether two expressions of a generated column mean the same: by their words, or else
// by what they make of rows. An expression that cannot be asked, because it needs other columns than
// ours, say, is another one.
func (s *Store) same(ctx context.Context, live, want string) (bool, error) {
	if schemacheck.Fold(live) == schemacheck.Fold(want) {
		return true, nil
	}
	live = strings.ReplaceAll(live, `\'`, "'") // as MySQL writes down
	text := strings.NewReplacer("{{live}}", live, "{{want}}", want).Replace(s.statements["compare"].text)
	var different int
	err := s.db.QueryRowContext(ctx, text).Scan(&different)
	if refused := new(mysql.MySQLError); errors.As(err, &refused) && brokenOff(err) == contention.None {
		return false, nil
	}
	return err == nil && different == 0, err
}
