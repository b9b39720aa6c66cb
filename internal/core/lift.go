package core

import "github.com/gorm-fanout/fanout/internal/store/driver"

// Lift decides what becomes of blocks, and admits scheduled rows whose time has come. A block whose
// time has come brings its row back; one whose row is done lets a bounded number of followers through,
// of which the last is the next block; one whose row must wait again leaves the way of claims.
func Lift(blocks []driver.BlockState, followers int) (lift driver.Lift) {
	done := 0
	for i := range blocks {
		b := &blocks[i]
		switch {
		case b.Scheduled:
			lift.Admit = append(lift.Admit, b.Ref())
		case b.Done && !b.HasKey:
			lift.Drop = append(lift.Drop, *b)
		case b.Done:
			if done++; done > driver.MaxDone {
				continue
			}
			move := len(b.Followers) >= followers
			if !move {
				lift.Drop = append(lift.Drop, *b)
			}
			if len(b.Followers) > 0 {
				lift.Free = append(lift.Free, driver.Freed{Block: *b, Rows: b.Followers, Move: move})
			}
		case b.Waits:
			lift.Rest = append(lift.Rest, *b)
		case b.Due:
			lift.Wake = append(lift.Wake, *b)
		}
	}
	return lift
}

// Nothing reports whether a lift changes nothing.
func Nothing(l *driver.Lift) bool {
	return len(l.Admit)+len(l.Wake)+len(l.Rest)+len(l.Drop)+len(l.Free) == 0
}
