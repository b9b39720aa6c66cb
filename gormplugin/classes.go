package gormplugin

import (
	"sync"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
)

// classes remember in which priority classes each type of aggregate has raised events. Order per key
// is kept within a class, so that a type with events in two of them is worth a warning: once in the
// life of the process. It is none where a job raises the events of old aggregates at a low priority.
type classes struct {
	mu   sync.RWMutex
	seen map[string]uint8 // by aggregate type: a bit for each class
}

// maxClasses bounds the memory of aggregates that are named at run time.
const maxClasses = 1000

// of remembers a class of an aggregate type, and reports whether it is the first one beside another.
func (c *classes) of(aggregate string, class outbox.Class) (mixed bool) {
	bit := uint8(1) << class
	c.mu.RLock()
	known := c.seen[aggregate]
	c.mu.RUnlock()
	if known&bit != 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known = c.seen[aggregate]
	if known == 0 && len(c.seen) >= maxClasses {
		return false
	}
	if c.seen == nil {
		c.seen = map[string]uint8{}
	}
	c.seen[aggregate] = known | bit
	return known != 0 && known&bit == 0
}

// warnOfClasses warns of an aggregate whose events lose their order, because their priorities are of
// two classes. row is one of the event's.
func (p *Plugin) warnOfClasses(f *journal.Flush, row *outbox.Row) {
	if row.OrderingKey == "" || f.Source.Aggregate == "" || !p.classes.of(f.Source.Aggregate, row.Class()) {
		return
	}
	p.log.Warn("an aggregate's events have priorities of two classes", "aggregate", f.Source.Aggregate, "type", row.Type, "priority", row.Priority,
		"class", row.Class().String(), "remedy", "order per key is kept within a class: where it matters, give all events of the aggregate a priority below 0, or none of them")
}
