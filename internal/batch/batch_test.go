package batch_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/batch"
	"github.com/gorm-fanout/fanout/internal/limits"
)

type row struct{ event, bytes int }

func (r *row) Bytes() int { return r.bytes }

// All rows are written, once and in order, in full statements but for the last one, and no more than
// two of them are held.
func TestWrite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3000).Draw(t, "events")
		perEvent := rapid.IntRange(1, 5).Draw(t, "rows of each event")
		large := rapid.SampledFrom([]int{1, 1, limits.BytesPerInsert / 10, limits.BytesPerInsert}).Draw(t, "bytes of a row")
		whole := rapid.Bool().Draw(t, "whole")
		refused := rapid.IntRange(-1, 4000).Draw(t, "refused")
		total, held, calls := 0, 0, 0
		var written []row
		errRefused := errors.New("refused")
		appendRows := func(rows []row, i int) ([]row, error) {
			if i == refused {
				return nil, errRefused
			}
			for range perEvent {
				rows = append(rows, row{i, large})
			}
			total += perEvent
			held = max(held, len(rows)*large)
			return rows, nil
		}
		err := batch.Write(n, batch.Room[row](n, perEvent), whole, appendRows, func(rows []row) error {
			calls++
			written = append(written, rows...)
			return nil
		})
		if refused >= 0 && refused < n {
			require.ErrorIs(t, err, errRefused)
			return
		}
		require.NoError(t, err)
		require.Len(t, written, total)
		require.IsNonDecreasing(t, events(written))
		if whole {
			require.LessOrEqual(t, calls, 1)
		} else {
			require.Less(t, held, 2*limits.BytesPerInsert+perEvent*large)
		}
	})
}

func events(rows []row) []int {
	events := make([]int, len(rows))
	for i := range rows {
		events[i] = rows[i].event
	}
	return events
}
