package relay

import (
	"cmp"
	"time"
)

// lookAhead decides when the claims of a shard look past a head that is full of rows that wait.
// Deferring them takes a while where there are very many, and meanwhile others should not wait. A
// look reads all that it passes over, and so takes its time, too: twice as much as deferring takes, and
// no more. It looks further when it has found nothing.
type lookAhead struct {
	rows int           // that the next look passes over
	most int           // after a look that failed: it may have taken too long; 0 = maxAhead
	owed time.Duration // for which rows are to be deferred before it
	due  bool          // rows were deferred, and there may be more
}

const (
	// minAhead and maxAhead bound how many rows a look passes over, and aheadGrowth is by how much the
	// next one looks further: what those before it have read is a fraction of what the last one reads.
	minAhead    = 4 * deferWindow
	maxAhead    = 1 << 20
	aheadGrowth = 64
	// aheadRetreat is by how much looks go less far after one that failed: it may have taken too long,
	// which is half of the time that an exchange has. A look an eighth as far leaves room for a server
	// that reads several times slower later on, and is a single failure away from what it can do, where
	// halving would fail again and again, with the deferring waiting for each.
	aheadRetreat = 8
	// aheadShare is by how much a look may take longer than the deferring that follows it.
	aheadShare = 2
)

// next is how many rows the next claim is to pass over; 0 = it looks at the head.
func (l *lookAhead) next() int {
	if !l.due || l.owed > 0 {
		return 0
	}
	return max(l.rows, minAhead)
}

// deferred is told how long it took to defer rows.
func (l *lookAhead) deferred(took time.Duration) {
	l.due, l.owed = true, l.owed-took
}

// crowded is told that the head is full of rows of claimed keys, or of keys that have their share of a
// claim, and how long the batch took meanwhile.
func (l *lookAhead) crowded(took time.Duration) { l.deferred(took) }

// looked is told whether a look has found anything.
func (l *lookAhead) looked(took time.Duration, found bool) {
	l.due, l.owed = false, took/aheadShare
	if !found {
		l.rows = min(aheadGrowth*max(l.rows, minAhead), cmp.Or(l.most, maxAhead))
	}
}

// failed is told that a look at so many rows has failed: rows are deferred before the next one, which
// passes over fewer.
func (l *lookAhead) failed(took time.Duration, rows int) {
	l.due, l.owed, l.most = false, took/aheadShare, max(rows/aheadRetreat, minAhead)
	l.rows = min(l.rows, l.most)
}

// clear is told that the head is not full of rows that wait.
func (l *lookAhead) clear() { *l = lookAhead{} }
