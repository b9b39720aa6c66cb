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
	// sentinelEvery is how often an engine looks for stranded rows.
	sentinelEvery = 10 * time.Minute
	// sentinelTime bounds one look.
	sentinelTime = 30 * time.Second
	// sentinelRows are the deferred rows of a broker that are read at a time, and sentinelPages how many
	// times in one look. The next one goes on behind them.
	sentinelRows, sentinelPages = 1000, 10
	// sentinelSilence is how long a broker whose rows are stranded is not written of again.
	sentinelSilence = time.Hour
)

// sentinel warns of rows in one database that no rule can ever make due.
type sentinel struct {
	store      driver.Delivery
	processors []*Processor // of the same database
	log        *slog.Logger
	searches   map[*Processor]*search
}

// A search is how far the rows of one broker have been looked through. It keeps one row, however many
// are stranded.
type search struct {
	after admin.Position
	rows  int          // that are stranded, since it began
	first admin.Record // of them
	said  time.Time
}

func newSentinel(store driver.Delivery, database string, cfg EngineConfig) *sentinel {
	return &sentinel{store: store, log: cmp.Or(cfg.Log, slog.Default()).With("database", database), searches: map[*Processor]*search{}}
}

// look looks through the next rows of each broker.
func (s *sentinel) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, sentinelTime)
	defer cancel()
	for _, processor := range s.processors {
		if err := s.search(bounded, processor); err != nil {
			if ctx.Err() == nil { // what fails for long, the processors tell
				s.log.DebugContext(ctx, "stranded rows not looked for", "broker", processor.broker, "error", err)
			}
			return
		}
	}
}

func (s *sentinel) search(ctx context.Context, processor *Processor) error {
	at := s.searches[processor]
	if at == nil {
		at = &search{}
		s.searches[processor] = at
	}
	for range sentinelPages {
		page, err := s.page(ctx, processor.broker, at.after)
		if err != nil {
			return err
		}
		if at.rows == 0 && len(page.Records) > 0 {
			at.first = page.Records[0]
		}
		at.rows += len(page.Records)
		if at.after = page.Next; page.Next == (admin.Position{}) {
			s.ended(ctx, processor, at)
			return nil
		}
	}
	if at.rows > 0 { // there may be more, and there are no fewer
		s.tell(ctx, processor, at)
		processor.stranded.Store(max(processor.stranded.Load(), int64(at.rows)))
	}
	return nil
}

// page reads a page, and where it has stranded rows once more: what a claim was bringing back at that
// moment is due by then.
func (s *sentinel) page(ctx context.Context, broker string, after admin.Position) (admin.List, error) {
	page, err := s.store.Stranded(ctx, broker, after, sentinelRows)
	if err != nil || len(page.Records) == 0 {
		return page, err
	}
	again, err := s.store.Stranded(ctx, broker, after, sentinelRows)
	page.Records = slices.DeleteFunc(page.Records, func(r admin.Record) bool {
		return !slices.ContainsFunc(again.Records, func(a admin.Record) bool { return a.ID == r.ID })
	})
	return page, err
}

// ended notes what a search through all rows of a broker has found.
func (s *sentinel) ended(ctx context.Context, processor *Processor, at *search) {
	switch before := processor.stranded.Load(); {
	case at.rows > 0:
		s.tell(ctx, processor, at)
	case before > 0:
		s.log.InfoContext(ctx, "rows no longer stranded", "broker", processor.broker)
		at.said = time.Time{}
	}
	processor.stranded.Store(int64(at.rows))
	at.rows, at.first = 0, admin.Record{}
}

// tell writes of the first row once in an hour.
func (s *sentinel) tell(ctx context.Context, processor *Processor, at *search) {
	if !at.said.IsZero() && time.Since(at.said) < sentinelSilence {
		return
	}
	at.said = time.Now()
	s.log.WarnContext(ctx, "rows stranded", "remedy", "fanout messages requeue --id "+at.first.MessageID+" --broker "+processor.broker,
		"broker", processor.broker, "rows", at.rows, "message_id", at.first.MessageID, "type", at.first.Type, "ordering_key", at.first.OrderingKey)
}
