package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // for the facts that are wanted
	"encoding/json"
	"strings"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// wantedText is what the migrations make, as sql/facts.sql sees it. A test writes the file.
//
//go:embed schema.facts
var wantedText string

// wanted are the facts of this store's tables. SQLite's catalog names them without their schema.
func (s *Store) wanted() (schemacheck.Facts, error) {
	return schemacheck.Parse(driver.RenderSQL(wantedText, bareName(s.table)))
}

func bareName(table string) string { return table[strings.LastIndexByte(table, '.')+1:] }

// facts reads what the named tables are made of.
func (s *Store) facts(ctx context.Context, tables []string) (schemacheck.Facts, error) {
	names, err := json.Marshal(tables)
	if err != nil {
		return nil, err
	}
	var live schemacheck.Facts
	err = s.read(ctx, func(rows *sql.Rows) error {
		var object, property, value string
		err := rows.Scan(&object, &property, &value)
		table, isTable := strings.CutPrefix(object, schemacheck.Table)
		switch {
		case property != "text":
			live = live.With(object, property, value)
		case isTable:
			owner := ""
			if !strings.EqualFold(table, tables[0]) {
				owner = " of " + table
			}
			live = addTable(live, owner, schemacheck.Scan(value))
		default:
			live = addIndex(live, object, schemacheck.Scan(value))
		}
		return err
	}, s.sql.facts, sql.Named("tables", string(names)))
	return live, err
}

// addTable adds what only the text of a CREATE TABLE tells: collations, generated expressions,
// constraints.
func addTable(facts schemacheck.Facts, owner string, text []schemacheck.Token) schemacheck.Facts {
	for _, item := range schemacheck.Split(schemacheck.Group(text, schemacheck.Index(text, "(")), ",") {
		switch item[0].Word() {
		case "constraint":
			facts = facts.With("constraint "+item[1].Word(), "definition", schemacheck.Text(item[2:]))
		case "check", "unique", "primary", "foreign": // no name, so nobody asks for it
		default:
			facts = addColumn(facts, "column "+item[0].Word()+owner, item)
		}
	}
	return facts
}

func addColumn(facts schemacheck.Facts, object string, text []schemacheck.Token) schemacheck.Facts {
	for i, depth := 1, 0; i < len(text); i++ {
		switch text[i].Word() {
		case "(":
			depth++
		case ")":
			depth--
		case "autoincrement":
			facts = facts.With(object, "autoincrement", "yes")
		case "collate":
			if depth == 0 && i+1 < len(text) {
				facts = facts.With(object, "collation", strings.ToUpper(text[i+1].Word()))
			}
		case "as":
			if depth == 0 {
				facts = facts.With(object, "generated", schemacheck.Text(schemacheck.Group(text, i+1)))
			}
		}
	}
	return facts
}

// addIndex reads CREATE [UNIQUE] INDEX name ON table (columns) [WHERE predicate].
func addIndex(facts schemacheck.Facts, object string, text []schemacheck.Token) schemacheck.Facts {
	unique := "no"
	if len(text) > 1 && text[1].Word() == "unique" {
		unique = "yes"
	}
	open := schemacheck.Index(text, "(")
	columns := schemacheck.Group(text, open)
	facts = facts.With(object, "unique", unique)
	facts = facts.With(object, "columns", schemacheck.Text(columns))
	if rest := text[min(len(text), open+len(columns)+2):]; len(rest) > 1 && rest[0].Word() == "where" {
		facts = facts.With(object, "predicate", schemacheck.Text(rest[1:]))
	}
	return facts
}
