package consumer

import (
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// maxRemembered bounds what is known of messages that were given back.
const maxRemembered = 10_000

// History is what this process knows of a message.
type History struct {
	// Past is what the next attempt is to be told.
	Past inbox.Past
	// Why it is abandoned; nil where it is not.
	Why error

	returns int // how often it was given back as abandoned
}

// memory keeps the histories of messages that were given back, so that one that comes again to this
// process goes on where it was. The oldest are forgotten first.
type memory struct {
	known map[string]remembered
	order []string
}

type remembered struct {
	History

	due time.Time
}

func (m *memory) keep(e *Entry) {
	if m.known == nil {
		m.known = map[string]remembered{}
	}
	if e.Past == (inbox.Past{}) && e.Why == nil {
		return
	}
	if _, found := m.known[e.ID]; !found {
		m.order = append(m.order, e.ID)
	}
	m.known[e.ID] = remembered{e.History, e.due}
	for len(m.known) > maxRemembered || len(m.order) > 2*maxRemembered {
		delete(m.known, m.order[0])
		m.order = m.order[1:]
	}
}

// restore gives a message that has come again its history back, where one is known.
func (m *memory) restore(e *Entry) {
	if was, found := m.known[e.ID]; found {
		delete(m.known, e.ID)
		was.Past.Failures = max(e.AtLeast, was.Past.Failures)
		if e.Why != nil {
			was.Why = e.Why
		}
		e.History, e.due = was.History, was.due
	}
}
