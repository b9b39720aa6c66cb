package dbtable

import (
	"errors"
	"fmt"
	"strings"
)

// Missing reports whether the database said that a table, or its schema, does not exist. No driver is linked here; each is known by its own
// way to say so.
func Missing(err error) bool {
	var (
		postgres  interface{ SQLState() string }
		sqlServer interface{ SQLErrorNumber() int32 }
	)
	switch {
	case err == nil:
		return false
	case errors.As(err, &postgres):
		return postgres.SQLState() == "42P01" || postgres.SQLState() == "3F000" // undefined table, undefined schema
	case errors.As(err, &sqlServer):
		return sqlServer.SQLErrorNumber() == 208 // invalid object
	default:
		return strings.Contains(err.Error(), "no such table") // SQLite
	}
}

// Explain adds the remedy to the error of a statement whose table does not exist, and leaves others as they are.
func Explain(err error, remedy string) error {
	if !Missing(err) {
		return err
	}
	return fmt.Errorf("%w: %s", err, remedy)
}
