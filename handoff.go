package fanout

import (
	"database/sql"
	"log/slog"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// connectHandOff connects the plugin of a handle with the processors, where rows are to go to them without a claim.
func (r *Relay) connectHandOff(database string, db *gorm.DB, log *slog.Logger) {
	writer, ok := db.Plugins[uow.PluginName].(interface {
		HandOff(pool *sql.DB, to gormplugin.Receiver) (cancel func())
	})
	if !ok || !r.engine.HandsOff(database) {
		return
	}
	pool, err := db.DB()
	if err != nil {
		log.Warn("the GORM handle has no pool to tell its transactions by: rows are not handed off", "database", database, "error", err)
		return
	}
	r.cancels = append(r.cancels, writer.HandOff(pool, receiver{r.engine, database}))
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
