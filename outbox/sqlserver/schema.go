package sqlserver

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the steps of the schema for a table, for "fanout migrate --print" and for other migration tools.
func Migrations(table string) ([]outbox.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("sqlserver: read migrations: %w", err)
	}
	return outbox.Migrations(files, table)
}
