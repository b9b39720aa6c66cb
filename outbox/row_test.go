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
	ahead := time.FixedZone("", 14*60*60)
	for _, c := range []struct {
		at   time.Time
		good bool
	}{
		{time.Time{}, true},
		{time.Unix(0, 0), true},
		{time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), true},
		{time.Date(999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), false},
		{time.Date(9999, 12, 30, 23, 59, 59, 999_999_999, time.UTC), true},
		{time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), false},
		{time.Date(9999, 12, 31, 10, 0, 0, 0, ahead), true},
		{time.Date(200_000, 1, 1, 0, 0, 0, 0, time.UTC), false},
		{time.Unix(1<<60, 0), false},
	} {
		for column, row := range map[string]outbox.Row{"available_at": {AvailableAt: c.at}, "expires_at": {ExpiresAt: c.at}} {
			err := row.Validate()
			if c.good {
				require.NoError(t, err, "%s", c.at)
				continue
			}
			malformed := new(outbox.MalformedError)
			require.ErrorAs(t, err, &malformed, "%s", c.at)
			assert.Equal(t, column, malformed.Column)
			assert.Contains(t, err.Error(), "years 1000 to 9999")
		}
	}
}
