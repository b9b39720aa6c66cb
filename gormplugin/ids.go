package gormplugin

import (
	"fmt"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/internal/unsetid"
)

// unsetID is for an event that names its own aggregate with a zero id, since it was raised before the
// database had made the key: with WithStrict an error, else a warning, once for each type.
func (p *Plugin) unsetID(f *journal.Flush) error {
	field := f.UnsetID(f.Source)
	if field == "" {
		return nil
	}
	if p.strict {
		return fmt.Errorf("its field %s is zero, and the id of the %s that raised it is %q: %s", field, f.Source.Aggregate, f.Source.ID, unsetid.Remedy)
	}
	p.unset.Warn(p.log, &f.Event, &f.Source, field)
	return nil
}
