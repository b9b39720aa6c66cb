package uow_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/uow"
)

// state and number are errors as the drivers of PostgreSQL and SQL Server report them.
type state string

func (s state) Error() string    { return string(s) }
func (s state) SQLState() string { return string(s) }

type number int32

func (n number) Error() string         { return fmt.Sprint(int32(n)) }
func (n number) SQLErrorNumber() int32 { return int32(n) }

func TestIsConflict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                      {nil, false},
		"an error of nobody's":     {errors.New("40001"), false},
		"serialization failure":    {state("40001"), true},
		"deadlock":                 {state("40P01"), true},
		"unique violation":         {state("23505"), false},
		"deadlock on SQL Server":   {number(1205), true},
		"deadlock of keys":         {number(51205), true},
		"a wrapped one":            {fmt.Errorf("save: %w", number(3960)), true},
		"one that joins another":   {errors.Join(state("25P02"), fmt.Errorf("before it: %w", state("40001"))), true},
		"several without conflict": {errors.Join(state("25P02"), errors.New("x")), false},
	} {
		assert.Equal(t, c.want, uow.IsConflict(c.err), name)
	}
}
