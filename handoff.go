package fanout

import (
	"log/slog"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

// connectHandOff connects the plugin of a handle with the processors, where rows are to go to them without a claim.
func (r *Relay) connectHandOff(database string, plugin any, log *slog.Logger) {
	switch writer, ok := plugin.(interface {
		HandOff(to gormplugin.Receiver) (cancel func())
	}); {
	case !ok:
	case r.engine.HandsOff(database):
		r.cancels = append(r.cancels, writer.HandOff(receiver{r.engine, database}))
	case r.handOff:
		log.Warn("outbox.hand_off does nothing here: the store of this database cannot verify rows; they are claimed", "database", database)
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
