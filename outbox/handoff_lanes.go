package outbox

// admit counts rows that are about to be handed off, unless a lane of theirs has work, in whatever class, or is in a worker's hands:
// then an earlier row of their keys may be waiting. Nor are there any while one that was marked may wait for those on their way, which
// it could do for ever if more and more joined them. rows are by lane of a class.
func (b *laneBoard) admit(rows *[Lanes]int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	for lane := range b.lanes {
		if rows[lane] == 0 {
			continue
		}
		if b.taken[lane] {
			return false
		}
		for class := range Classes {
			if other := class*b.lanes + lane; b.dirty[other] || b.behind[other] {
				return false
			}
		}
	}
	for lane := range b.lanes {
		b.handed[lane] += rows[lane]
	}
	return true
}

// arrive says that rows of a lane are on their way no more. back says that some went back to the database. What was marked
// meanwhile is marked again: a claim may have found the keys held. Not before all are there, for it could be those that hold.
func (b *laneBoard) arrive(lane, rows int, back bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handed[lane] -= rows
	if back {
		b.soil(lane)
	}
	if b.handed[lane] == 0 {
		for class := range Classes {
			if other := class*b.lanes + lane; b.behind[other] {
				b.behind[other] = false
				b.soil(other)
			}
		}
	}
	b.broadcast()
}
