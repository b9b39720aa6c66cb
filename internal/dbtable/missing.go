package dbtable

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MissingNumbers are SQL Server's errors about a table that does not exist or lacks a part: invalid
// column, invalid object, no such index. They are for who has the driver, and so sees all errors of
// a statement and not only the last.
var MissingNumbers = []int32{207, 208, 308}

var (
	missingStates = []string{"42P01", "42703", "3F000"} // of PostgreSQL: undefined table, column, schema
	// missingTexts are SQLite's, and MySQL's numbers of an unknown database, column, table and index,
	// as its driver writes them in front.
	missingTexts = []string{
		"no such table", "no such column", "no such index", "has no column named", "Error 1049 ", "Error 1054 ", "Error 1146 ", "Error 1176 ",
	}
)

// Missing reports whether the database said that a table, its schema, or a column or index of it
// does not exist. No driver is linked here: each is known by its own way to say so.
func Missing(err error) bool {
	var (
		postgres  interface{ SQLState() string }
		sqlServer interface{ SQLErrorNumber() int32 }
	)
	switch {
	case err == nil:
		return false
	case errors.As(err, &postgres):
		return slices.Contains(missingStates, postgres.SQLState())
	case errors.As(err, &sqlServer):
		return slices.Contains(MissingNumbers, sqlServer.SQLErrorNumber()) && !strings.Contains(err.Error(), "'OPENJSON'") // a function
	default: // SQLite, MySQL
		return slices.ContainsFunc(missingTexts, func(text string) bool { return strings.Contains(err.Error(), text) })
	}
}

// Explain adds the remedy to the error of a statement whose table is [Missing], and leaves others
// as they are.
func Explain(err, remedy error) error {
	if !Missing(err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, remedy)
}
