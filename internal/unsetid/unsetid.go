// Package unsetid warns of events that name their own aggregate with a zero id, since they were made
// before the database had made the key.
package unsetid

import (
	"fmt"
	"log/slog"
	"reflect"
	"sync"

	"github.com/gorm-fanout/fanout/envelope"
)

// Remedy is what to do about such an event.
const Remedy = "give the field the tag `fanout:\"id\"`, which fills it in, or make the event after the insert, with GORM in an AfterCreate hook say"

// Warnings are given once for each type of event. The zero value has given none. It is safe for
// concurrent use.
type Warnings struct{ given sync.Map } // reflect.Type -> nothing

// Warn is about the field of an event that [envelope.Event.UnsetID] has named.
func (w *Warnings) Warn(log *slog.Logger, event *envelope.Event, source *envelope.Source, field string) {
	if _, warned := w.given.LoadOrStore(reflect.TypeOf(event.Data), struct{}{}); !warned {
		log.Warn("an event names its aggregate with a zero id", "aggregate", source.Aggregate, "event", fmt.Sprintf("%T", event.Data),
			"field", field, "id", source.ID, "remedy", Remedy)
	}
}
