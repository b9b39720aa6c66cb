package relay

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// heartbeatEvery is how often a process says that it is still there.
	heartbeatEvery = 30 * time.Second
	// outageEvery is how often a process looks whether something has become unavailable, or is again what
	// it was, which it says at once.
	outageEvery = 2 * time.Second
	// heartbeatTime bounds one heartbeat. A stop waits no longer than that for the last one.
	heartbeatTime = 5 * time.Second
)

// heartbeat enters this process, and what its workers have claimed, in the table of instances of
// one database. Nothing depends on it: when it cannot be written, delivery goes on.
type heartbeat struct {
	store      driver.Delivery
	processors []*Processor // of the same database
	instance   admin.Instance
	log        *slog.Logger
	failing    failure.Standing
}

// newHeartbeat names the process: by its host where the configuration gives no name.
func newHeartbeat(store driver.Delivery, database string, cfg EngineConfig, id uuid.UUID) *heartbeat {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	log := cfg.Log
	if log == nil {
		log = slog.Default()
	}
	return &heartbeat{
		store: store, log: log.With("database", database),
		instance: admin.Instance{ID: id, Name: cmp.Or(cfg.Name, host), Host: host, PID: os.Getpid(), Version: cfg.Version},
	}
}

// run sends heartbeats until ctx ends, and then takes the entry away.
func (p *heartbeat) run(ctx context.Context) {
	ticker, outages := time.NewTicker(heartbeatEvery), time.NewTicker(outageEvery)
	defer ticker.Stop()
	defer outages.Stop()
	for due := true; ctx.Err() == nil; {
		if out := p.unavailable(); due || !slices.Equal(out, p.instance.Unavailable) {
			p.beat(ctx, out)
		}
		select {
		case <-ticker.C:
			due = true
		case <-outages.C:
			due = false
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeatTime)
	defer cancel()
	if err := p.store.Leave(ctx, p.instance.ID); err != nil && !p.failing.Lasts() {
		p.log.WarnContext(ctx, "heartbeat not removed", "error", err)
	}
}

// unavailable is what does not take messages.
func (p *heartbeat) unavailable() (list []admin.Unavailable) {
	for _, processor := range p.processors {
		list = append(list, processor.unavailable()...)
	}
	return list
}

func (p *heartbeat) beat(ctx context.Context, unavailable []admin.Unavailable) {
	p.instance.Work, p.instance.Unavailable = nil, unavailable
	for _, processor := range p.processors {
		p.instance.Work = append(p.instance.Work, processor.inHand.list()...)
	}
	bounded, cancel := context.WithTimeout(ctx, heartbeatTime)
	defer cancel()
	err := p.store.Heartbeat(bounded, p.instance)
	switch {
	case ctx.Err() != nil: // cut short by the stop
	case err != nil:
		if p.failing.Failed(err) {
			p.log.WarnContext(ctx, "heartbeat failed", "error", err)
		}
	default:
		if _, was := p.failing.Works(); was {
			p.log.InfoContext(ctx, "heartbeat restored")
		}
	}
}

// maxUnavailable is how many destinations of a broker a heartbeat names.
const maxUnavailable = 20

// unavailable is what of the broker does not take messages.
func (p *Processor) unavailable() (list []admin.Unavailable) {
	if !p.breaker.closed() {
		list = append(list, admin.Unavailable{Broker: p.broker})
	}
	destinations := p.destinations.unavailable()
	for _, name := range destinations[:min(len(destinations), maxUnavailable)] {
		list = append(list, admin.Unavailable{Broker: p.broker, Destination: name})
	}
	return list
}

// inHand is what the workers of one processor have claimed, by worker.
type inHand struct {
	mu   sync.Mutex
	work map[string]admin.Work
}

// hold notes that a worker has claimed a batch; an empty one leaves it with nothing.
func (h *inHand) hold(worker, broker string, batch *driver.Batch, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(batch.Messages) == 0 {
		delete(h.work, worker)
		return
	}
	if h.work == nil {
		h.work = map[string]admin.Work{}
	}
	h.work[worker] = admin.Work{Worker: worker, Broker: broker, Shard: batch.Lease.Shard, Rows: len(batch.Messages), Since: since.UTC()}
}

func (h *inHand) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.work)
}

func (h *inHand) list() []admin.Work {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]admin.Work, 0, len(h.work))
	for _, work := range h.work {
		list = append(list, work)
	}
	slices.SortFunc(list, func(a, b admin.Work) int { return cmp.Compare(a.Worker, b.Worker) })
	return list
}
