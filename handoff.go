package fanout

import (
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

// connectHandOff connects the plugin of a handle with the processors, where rows are to go to them without a claim.
func (r *Relay) connectHandOff(database string, plugin any) {
	writer, ok := plugin.(interface {
		HandOff(to gormplugin.Receiver) (cancel func())
	})
	if ok && r.engine.HandsOff(database) {
		r.cancels = append(r.cancels, writer.HandOff(receiver{r.engine, database}))
	}
}

// receiver is one database's part of an engine.
type receiver struct {
	engine   *outbox.Engine
	database string
}

// Reserve implements gormplugin.Receiver.
func (r receiver) Reserve(dialect outbox.Dialect, rows []outbox.Row) *outbox.Reservation {
	return r.engine.Reserve(r.database, dialect, rows)
}
