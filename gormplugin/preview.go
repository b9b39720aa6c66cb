package gormplugin

import (
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// Captured is an event that a transaction would write if it committed now.
type Captured struct {
	// Data is the value that was raised or published. What is sent is what it was then.
	Data any
	// Source is the aggregate that raised it; zero for an event without one.
	Source envelope.Source
	// Rows are what the outbox would get, one per target broker: the internal one first.
	Rows []outbox.Row
}

// Preview tells what the transaction of tx would write to the outbox if it committed now, in the
// order in which it was raised, and writes nothing. It is meant for tests, for which package
// fanouttest builds on it, and for inbox.Expect, which needs the message ids: there call it last,
// as what is raised or saved after it is not in its answer. Outside a transaction of GORM's the
// error wraps uow.ErrNoTransaction; an event that could not be written is a *CaptureError; what
// Strict would refuse is its *PendingError.
func Preview(tx *gorm.DB) ([]Captured, error) {
	if _, err := pluginOf(tx); err != nil {
		return nil, err
	}
	t, foreign := transactionOf(tx.Statement.ConnPool)
	if t == nil {
		if foreign != nil {
			return nil, fmt.Errorf("gormplugin: the transaction was begun outside GORM, where events are written at the statement: %w", uow.ErrNoTransaction)
		}
		return nil, uow.ErrNoTransaction
	}
	flush, err := t.journal.Collect(false)
	if err == nil {
		err = t.refusal(flush)
	}
	if err != nil {
		return nil, err
	}
	captured := make([]Captured, len(flush))
	for i := range flush {
		rows, err := t.plugin.appendRows(nil, &flush[i])
		if err != nil {
			return nil, err
		}
		data, err := flush[i].Identified(flush[i].Source)
		if err != nil {
			return nil, err // as writing it would have been
		}
		captured[i] = Captured{Data: data, Source: flush[i].Source, Rows: rows}
	}
	left, err := t.journal.Left(flush)
	if err == nil && t.plugin.strict && len(left) > 0 {
		err = &PendingError{Aggregates: left}
	}
	if err != nil {
		return nil, err
	}
	return captured, nil
}
