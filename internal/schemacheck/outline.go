package schemacheck

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

//go:embed outline
var outlineFiles embed.FS

// A Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// outlined reports whether an outline has a property. Collations decide equality on two databases only.
func outlined(dialect Dialect, property string) bool {
	switch property {
	case "type", "nullable", "primary key", "columns", "unique":
		return true
	}
	return property == "collation" && (dialect == MySQL || dialect == SQLServer)
}

// Outline compares a table, through whatever driver there is, with what the steps make, which is one
// table: columns with their types, the primary key and the indexes. It asks once. The table's name must
// have passed [dbtable.CheckName].
func Outline(ctx context.Context, on Querier, dialect Dialect, table string, steps ...dbtable.Migration) (dbtable.Comparison, error) {
	made, err := Wanted(dialect, steps...)
	if err != nil {
		return dbtable.Comparison{}, err
	}
	live, err := outline(ctx, on, dialect, table)
	if err != nil || len(live) == 0 {
		return dbtable.Comparison{}, err
	}
	var want Facts
	for _, object := range made {
		object.Properties = slices.DeleteFunc(object.Properties, func(p Property) bool { return !outlined(dialect, p.Name) })
		if len(object.Properties) > 0 || strings.HasPrefix(object.Name, Table) {
			want = append(want, object)
		}
	}
	for i := range live { // each text has a collation
		of := want.Find(live[i].Name)
		live[i].Properties = slices.DeleteFunc(live[i].Properties, func(p Property) bool { return p.Name == "collation" && of.Value(p.Name) == None })
	}
	return dbtable.Comparison{Begun: true, Differences: Differences(want, live)}, nil
}

// outline reads what there is of a table; nothing where there is none.
func outline(ctx context.Context, on Querier, dialect Dialect, table string) (live Facts, err error) {
	text, err := outlineFiles.ReadFile("outline/" + string(dialect) + ".sql")
	if err != nil {
		return nil, fmt.Errorf("schemacheck: %w", err)
	}
	schema := strings.TrimSuffix(strings.TrimSuffix(table, dbtable.Bare(table)), ".")
	in := ""
	if schema != "" {
		in = ", '" + schema + "'"
	}
	query := strings.NewReplacer("{{schema}}", schema, "{{in}}", in).Replace(dbtable.Render(string(text), table))
	rows, err := on.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	live = Facts{{Name: Table + table}}
	for rows.Next() {
		var object, property string
		var value sql.NullString
		if err := rows.Scan(&object, &property, &value); err != nil {
			return nil, err
		}
		if !value.Valid {
			continue
		}
		if dialect == MySQL && property == "type" {
			value.String = MySQLType(value.String)
		}
		live = live.With(object, property, value.String)
	}
	if len(live) == 1 {
		return nil, rows.Err()
	}
	return live, rows.Err()
}
