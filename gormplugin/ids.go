package gormplugin

import (
	"fmt"
	"reflect"

	"github.com/gorm-fanout/fanout/internal/journal"
)

// unsetID is for an event that names its own aggregate with a zero id, since it was raised before the
// database had made the key: with WithStrict an error, else a warning, once for each type.
func (p *Plugin) unsetID(f *journal.Flush) error {
	field := f.UnsetID(f.Source)
	if field == "" {
		return nil
	}
	const remedy = "give the field the tag `fanout:\"id\"`, which fills it in, or raise the event after the insert, in an AfterCreate hook say"
	if p.strict {
		return fmt.Errorf("its field %s is zero, and the id of the %s that raised it is %q: %s", field, f.Source.Aggregate, f.Source.ID, remedy)
	}
	if _, warned := p.unset.LoadOrStore(reflect.TypeOf(f.Data), true); !warned {
		p.log.Warn("an event names its aggregate with a zero id", "aggregate", f.Source.Aggregate, "event", fmt.Sprintf("%T", f.Data),
			"field", field, "id", f.Source.ID, "remedy", remedy)
	}
	return nil
}
