package relay

import (
	"context"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// pausesTime bounds the look at who has paused a broker: until it is over, a resumption is not
// noticed.
const pausesTime = 5 * time.Second

// pause stops the workers, or lets them go on. What they have claimed is given back.
func (p *Processor) pause(ctx context.Context, paused bool) {
	p.shards.stop(paused)
	switch before := p.paused.Swap(paused); {
	case paused && !before:
		p.log.InfoContext(ctx, "broker paused", p.pausedBy(ctx)...)
	case before && !paused:
		p.log.InfoContext(ctx, "broker resumed")
	}
}

// pausedBy says in log attributes who has paused the broker, why and since when. There are none
// where it is unknown: the store keeps no pauses, or this one has just ended.
func (p *Processor) pausedBy(ctx context.Context) []any {
	ctx, cancel := context.WithTimeout(ctx, min(pausesTime, p.databaseTimeout()))
	defer cancel()
	pauses, err := p.store.Pauses(ctx)
	if err != nil {
		return []any{"error", err}
	}
	i := slices.IndexFunc(pauses, func(pause admin.Pause) bool { return pause.Broker == p.broker })
	if i < 0 {
		return nil
	}
	return []any{"by", pauses[i].By, "reason", pauses[i].Reason, "since", pauses[i].Since}
}
