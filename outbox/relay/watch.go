package relay

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// watchEvery is how often an engine looks at its databases.
	watchEvery = 5 * time.Minute
	// watchTime bounds one look.
	watchTime = 30 * time.Second
)

// watch warns of what the database says of itself.
type watch struct {
	store  driver.Delivery
	log    *slog.Logger
	warned []admin.Finding // of these, while they last
}

func newWatch(store driver.Delivery, database string, cfg EngineConfig) *watch {
	return &watch{store: store, log: cmp.Or(cfg.Log, slog.Default()).With("database", database)}
}

// look warns of each finding once, and says when it is over.
func (w *watch) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	found, err := w.store.Watch(bounded)
	if err != nil {
		if ctx.Err() == nil { // what fails for long, the processors tell
			w.log.DebugContext(ctx, "database not diagnosed", "error", err)
		}
		return
	}
	for _, finding := range found {
		if !slices.Contains(w.warned, finding) {
			w.log.WarnContext(ctx, "database problem", "topic", finding.Topic, "problem", finding.Message)
		}
	}
	for _, before := range w.warned {
		if !slices.Contains(found, before) {
			w.log.InfoContext(ctx, "database problem over", "topic", before.Topic, "problem", before.Message)
		}
	}
	w.warned = found
}
