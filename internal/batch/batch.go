// Package batch bounds what a transaction holds in memory while it writes the rows of many events.
package batch

import (
	"math"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// rowsAtOnce and bytesAtOnce are two full statements. A transaction of 100,000 events, or of 300
// large ones, encodes and writes them by and by.
const (
	rowsAtOnce  = 1000
	bytesAtOnce = 2 * limits.BytesPerInsert
)

// Room is empty, with the capacity that n events need which have at most perEvent rows each.
func Room[R any](n, perEvent int) []R {
	return make([]R, 0, min(n*perEvent, rowsAtOnce+perEvent-1))
}

// Write appends the rows of n events to those in room, one event after the other, and writes them as
// soon as they fill two statements. With whole they are written in one go, however many: the locks
// of all their ordering keys are taken first, for the sake of their order. write must not keep the
// slice. The first error ends it.
func Write[R any, P interface {
	*R
	Bytes() int
}](n int, room []R, whole bool, appendRows func(rows []R, i int) ([]R, error), write func([]R) error) error {
	rows, bytes, atOnce := room, 0, rowsAtOnce
	if whole {
		atOnce = math.MaxInt
	}
	bytesOf := func(rows []R) (bytes int) {
		for i := range rows {
			bytes += P(&rows[i]).Bytes()
		}
		return bytes
	}
	for i := range n {
		var err error
		before := len(rows)
		if rows, err = appendRows(rows, i); err != nil {
			return err
		}
		bytes += bytesOf(rows[before:])
		full := len(rows) - len(rows)%atOnce
		if i == n-1 || bytes >= bytesAtOnce && !whole {
			full = len(rows)
		}
		if full == 0 {
			continue
		}
		if err := write(rows[:full]); err != nil {
			return err
		}
		left := copy(rows, rows[full:])
		clear(rows[left:]) // lets go of the payloads
		rows = rows[:left]
		bytes = bytesOf(rows)
	}
	return nil
}
