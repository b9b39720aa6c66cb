package claims_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// slow is a store that takes a while to look ahead, and finds one row.
type slow struct {
	claims.Store // nothing else of it is called

	takes  time.Duration
	looks  int
	remain time.Duration // that a claim had for taking the row
	err    error         // of taking it
}

func (s *slow) Window(ctx context.Context, _ *driver.Claim) (driver.Window, error) {
	s.looks++
	select {
	case <-time.After(s.takes):
		return driver.Window{Rows: []driver.Row{{Ref: driver.Ref{ID: 1}, Key: "key"}}}, nil
	case <-ctx.Done():
		return driver.Window{}, ctx.Err()
	}
}

func (s *slow) Take(ctx context.Context, _ *driver.Claim, _ *driver.Choice) (driver.Batch, error) {
	deadline, _ := ctx.Deadline()
	s.remain = time.Until(deadline)
	return driver.Batch{Messages: make([]driver.Message, 1)}, s.err
}

// Rows whose claim gets no answer in time would be leased, and in no process: a look leaves half of the time for
// taking what it has found.
func TestALookLeavesTimeToTake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes time.Duration
		fails bool
	}{
		"in time":  {7 * time.Second, false},
		"too long": {14 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				s := &slow{takes: c.takes}
				exchanged, err := claims.Exchange(ctx, s, nil, &driver.Claim{Limit: 1, Window: 1, Ahead: 1000})
				if c.fails {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Zero(t, s.remain, "it took the row")
					return
				}
				require.NoError(t, err)
				assert.Len(t, exchanged.Batch.Messages, 1)
				assert.Equal(t, 8*time.Second, s.remain)
			})
		})
	}
}

// A decision that others have made void is made anew where there is time for another look.
func TestALookIsRepeatedWhileThereIsTime(t *testing.T) {
	t.Parallel()
	for takes, looks := range map[time.Duration]int{time.Second: 3, 4 * time.Second: 2, 6 * time.Second: 1} {
		t.Run(takes.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				s := &slow{takes: takes, err: claims.ErrConflict}
				exchanged, err := claims.Exchange(ctx, s, nil, &driver.Claim{Limit: 1, Window: 1, Ahead: 1000})
				require.NoError(t, err)
				assert.True(t, exchanged.Batch.Busy)
				assert.Equal(t, looks, s.looks)
			})
		})
	}
}
