package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// A time that some database does not take, or JSON cannot say, is refused with its column, before it
// could fail the transaction of a service, or a list of whoever is on call.
func TestRowTimes(t *testing.T) {
	t.Parallel()
	good := []time.Time{
		{},
		time.Unix(0, 0), time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 30, 23, 59, 59, 999_999_999, time.UTC),
		time.Date(9999, 12, 31, 10, 0, 0, 0, time.FixedZone("", 14*60*60)),
	}
	for _, at := range good {
		require.NoError(t, (&outbox.Row{ExpiresAt: at}).Validate(), "%s", at)
	}
	require.NoError(t, (&outbox.Row{AvailableAt: time.Now().AddDate(4, 11, 0)}).Validate())
	require.ErrorContains(t, (&outbox.Row{AvailableAt: time.Now().AddDate(5, 1, 0)}).Validate(), "five years ahead at most")
	bad := []time.Time{
		time.Date(999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0),
	}
	for _, at := range bad {
		for column, row := range map[string]outbox.Row{"available_at": {AvailableAt: at}, "expires_at": {ExpiresAt: at}} {
			malformed := new(outbox.MalformedError)
			require.ErrorAs(t, row.Validate(), &malformed, "%s", at)
			assert.Equal(t, column, malformed.Column)
			assert.Contains(t, malformed.Error(), "years 1000 to 9999")
		}
	}
}
