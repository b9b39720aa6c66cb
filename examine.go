package fanout

import (
	"context"
	"log/slog"

	"github.com/gorm-fanout/fanout/outbox"
)

// examine finds out whether a relay can work with a database, and logs what an operator should change there. That the
// database cannot tell how it is set up is no obstacle.
func examine(ctx context.Context, name string, store outbox.FullStore, log *slog.Logger) error {
	log = log.With("database", name)
	diagnosis, err := store.Diagnose(ctx)
	if err != nil {
		log.WarnContext(ctx, "cannot see how the database is set up", "error", err)
	}
	for _, finding := range diagnosis.Warnings() {
		if finding.Passing { // the engine looks for these
			continue
		}
		log.WarnContext(ctx, "the database should be set up otherwise", "topic", finding.Topic, "problem", finding.Message)
	}
	if err := diagnosis.Err(); err != nil {
		return err
	}
	return store.Check(ctx)
}
