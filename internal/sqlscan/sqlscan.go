// Package sqlscan reads numbers and truths from rows of database/sql without its detour: where the
// type of a destination is not the one that the driver delivers, database/sql prints the number,
// parses it and sets it by reflection, for each cell of each row.
package sqlscan

import (
	"database/sql"
	"errors"
)

// Int is a destination for a whole number. NULL is an error.
type Int int

// Scan implements sql.Scanner.
func (i *Int) Scan(src any) error {
	if n, ok := src.(int64); ok { // as drivers deliver it
		*i = Int(n)
		return nil
	}
	var n sql.NullInt64
	if err := n.Scan(src); err != nil {
		return err
	}
	if !n.Valid {
		return errors.New("a whole number is NULL")
	}
	*i = Int(n.Int64)
	return nil
}

// Bool is a destination for a truth, which may be a number where the database has no type for it.
// NULL is an error.
type Bool bool

// Scan implements sql.Scanner.
func (b *Bool) Scan(src any) error {
	switch value := src.(type) {
	case bool:
		*b = Bool(value)
		return nil
	case int64:
		if value == 0 || value == 1 {
			*b = value == 1
			return nil
		}
	}
	var truth sql.NullBool
	if err := truth.Scan(src); err != nil {
		return err
	}
	if !truth.Valid {
		return errors.New("a truth is NULL")
	}
	*b = Bool(truth.Bool)
	return nil
}
