package outbox

import (
	"fmt"
	"math"
	"sync"

	"github.com/gorm-fanout/fanout/envelope"
)

// counted is how far a writer has counted in a transaction that is open: a further Insert in it counts
// on from there, for all aggregates, so that no event has the sequence of an earlier one. It is one
// number, whatever a transaction writes: a sequence has to ascend, and may leave numbers out.
type counted struct {
	mu      sync.Mutex
	highest int
}

// countedIn is what is counted in a transaction. Events whose aggregates have no version have no
// sequence, and need nothing kept.
func (w *Writer) countedIn(transaction any, events []envelope.Event) *counted {
	for i := range events {
		if source := events[i].Source(); source.Version > 0 {
			return w.counted.Of(transaction)
		}
	}
	return new(counted)
}

// sourcesOf are the aggregates of events, each counted from after, or on from where one says so itself.
func sourcesOf(events []envelope.Event, after int) (sources []envelope.Source, highest int, err error) {
	type instance struct{ aggregate, id string }
	sources = make([]envelope.Source, len(events))
	last := make(map[instance]int, 1)
	highest = after
	for i := range events {
		source := &sources[i]
		*source = events[i].Source()
		of := instance{source.Aggregate, source.ID}
		if source.Sequence == 0 && source.Aggregate != "" {
			source.Sequence = max(last[of], after) + 1
		}
		if source.Version < 0 || source.Sequence < 0 || source.Sequence > math.MaxInt32 {
			return nil, 0, fmt.Errorf("outbox: write %T raised by %s %s: its Version is %d and its Sequence %d: "+
				"set them to numbers from 1, the Sequence to one up to %d, or leave them out",
				events[i].Data, shown(source.Aggregate), shown(source.ID), source.Version, source.Sequence, math.MaxInt32)
		}
		last[of] = source.Sequence
		highest = max(highest, source.Sequence)
	}
	return sources, highest, nil
}
