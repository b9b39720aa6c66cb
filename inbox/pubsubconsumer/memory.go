package pubsubconsumer

import (
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// maxRemembered bounds what is known of messages that were given back.
const maxRemembered = 10_000

// history is what this process knows of a message.
type history struct {
	past    inbox.Past
	why     error // it is abandoned
	returns int   // how often it was given back to Pub/Sub as abandoned
}

// memory keeps the histories of messages that were given back, so that one that comes again to this
// process goes on where it was. The oldest are forgotten first.
type memory struct {
	known map[string]remembered
	order []string
}

type remembered struct {
	history

	due time.Time
}

func (m *memory) keep(e *entry) {
	if m.known == nil {
		m.known = map[string]remembered{}
	}
	if e.past == (inbox.Past{}) && e.why == nil {
		return
	}
	if _, found := m.known[e.id]; !found {
		m.order = append(m.order, e.id)
	}
	m.known[e.id] = remembered{e.history, e.due}
	for len(m.known) > maxRemembered || len(m.order) > 2*maxRemembered {
		delete(m.known, m.order[0])
		m.order = m.order[1:]
	}
}

// restore gives a message that has come again its history back; false where nothing is known.
func (m *memory) restore(e *entry) bool {
	was, found := m.known[e.id]
	if !found {
		return false
	}
	delete(m.known, e.id)
	e.history, e.due = was.history, was.due
	return true
}
