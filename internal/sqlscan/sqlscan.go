// Package sqlscan reads numbers from rows of database/sql without its detour: where the
// type of a destination is not the one that the driver delivers, database/sql prints the number,
// parses it and sets it by reflection, for each cell of each row.
package sqlscan

import (
	"database/sql"
	"errors"
	"time"
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

// Micros is a destination for a duration that comes in whole microseconds. NULL is an error.
type Micros time.Duration

// Scan implements sql.Scanner.
func (m *Micros) Scan(src any) error {
	var n Int
	err := n.Scan(src)
	if err == nil {
		*m = Micros(time.Duration(n) * time.Microsecond)
	}
	return err
}
