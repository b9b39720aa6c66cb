package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestTransient(t *testing.T) {
	t.Parallel()
	for _, number := range []int32{601, 1205, 1222, 3960, 2627, errLockNotGranted, errChanged} {
		assert.True(t, transient(fmt.Errorf("step: %w", serverError(number))), number)
	}
	// The last error of an answer is not always the one that tells what happened.
	assert.True(t, transient(mssql.Error{Number: 3621, All: []mssql.Error{{Number: 1205}, {Number: 3621}}}))
	for _, err := range []error{nil, serverError(208), serverError(50000), errors.New("1205"), context.Canceled, errIncomplete} {
		assert.False(t, transient(err), err)
	}
}

func TestRetryIsBounded(t *testing.T) {
	t.Parallel()
	calls := 0
	require.Error(t, retry(t.Context(), func() error { calls++; return serverError(1205) }))
	assert.Equal(t, contention.Tries, calls)
	calls = 0
	require.NoError(t, retry(t.Context(), func() error {
		if calls++; calls < contention.Tries {
			return serverError(1222)
		}
		return nil
	}))
	calls = 0
	require.Error(t, retry(t.Context(), func() error { calls++; return serverError(547) }))
	assert.Equal(t, 1, calls)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	require.NoError(t, explain(nil))
	for _, number := range []int32{207, 208, 308} {
		err := explain(serverError(number))
		require.ErrorIs(t, err, outbox.ErrSchema)
		require.ErrorContains(t, err, "fanout migrate")
	}
	level := explain(mssql.Error{Number: 208, Message: "Invalid object name 'OPENJSON'."})
	require.NotErrorIs(t, level, outbox.ErrSchema, "migrating would not help")
	require.ErrorContains(t, level, "compatibility level")
	for number, remedy := range map[int32]string{
		102: "compatibility level", 319: "compatibility level", 8622: "indexes", 229: "grant", 262: "grant", 1934: "QUOTED_IDENTIFIER",
		3906: "primary", 978: "primary", 1222: "open transaction", errLockNotGranted: "open transaction",
	} {
		err := explain(serverError(number))
		require.ErrorContains(t, err, "said the server")
		require.ErrorContains(t, err, remedy)
		require.NotErrorIs(t, err, outbox.ErrSchema)
	}
	other := serverError(547)
	assert.Equal(t, other, explain(other))
}
