package dbtable_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

var errMake = errors.New("make it")

type postgresError string

func (e postgresError) Error() string    { return "postgres says " + string(e) }
func (e postgresError) SQLState() string { return string(e) }

type sqlServerError int32

func (e sqlServerError) Error() string         { return fmt.Sprintf("SQL Server says %d", int32(e)) }
func (e sqlServerError) SQLErrorNumber() int32 { return int32(e) }

// Each database has its own way to say that a table is not there, or not as it should be.
func TestMissing(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		postgresError("42P01"), postgresError("3F000"), postgresError("42703"), sqlServerError(207), sqlServerError(208), sqlServerError(308),
		errors.New("SQL logic error: no such table: inbox_messages (1)"), errors.New("SQL logic error: no such column: shard (1)"),
		errors.New("SQL logic error: table outbox_messages has no column named shard (1)"), errors.New("SQL logic error: no such index: i (1)"),
	} {
		wrapped := fmt.Errorf("wrapped: %w", err)
		assert.True(t, dbtable.Missing(wrapped), err.Error())
		explained := dbtable.Explain(wrapped, errMake)
		assert.EqualError(t, explained, wrapped.Error()+": make it")
		assert.ErrorIs(t, explained, err)
		assert.ErrorIs(t, explained, errMake)
	}
	for _, err := range []error{
		postgresError("40001"), sqlServerError(1205), fmt.Errorf("invalid object name 'OPENJSON': %w", sqlServerError(208)), errors.New("database is locked"), nil,
	} {
		assert.False(t, dbtable.Missing(err), "%v", err)
		assert.Equal(t, err, dbtable.Explain(err, errMake))
	}
}
