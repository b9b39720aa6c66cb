package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// leaseGuard renews the lease of a batch while it is published and knows when it is over. A batch
// that goes out quickly costs no renewal.
type leaseGuard struct {
	mu       sync.Mutex
	deadline time.Time   // nothing is sent after this
	timer    *time.Timer // ends what is in progress at the deadline
	cancel   context.CancelCauseFunc
	done     chan struct{}
}

var errLeaseLost = errors.New("outbox: the lease was lost")

// guardLease starts to guard a batch. The context that it returns ends when the lease is lost.
func guardLease(ctx context.Context, p *Processor, batch *driver.Batch, claimedAt time.Time) (context.Context, *leaseGuard) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &leaseGuard{deadline: lastSend(claimedAt, p.policy.Lease), cancel: cancel, done: make(chan struct{})}
	g.timer = time.AfterFunc(time.Until(g.deadline), func() { cancel(errLeaseLost) })
	go g.renew(ctx, p, batch)
	return ctx, g
}

// lastSend is when sending must stop: at 80 % of the lease, counted by our own clocks from before
// the database was asked, so that neither clocks nor a slow answer can make us send what others may
// own.
func lastSend(asked time.Time, lease time.Duration) time.Time { return asked.Add(lease * 4 / 5) }

func (g *leaseGuard) renew(ctx context.Context, p *Processor, batch *driver.Batch) {
	defer close(g.done)
	ticker := time.NewTicker(p.policy.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		kept, err := renewOnce(ctx, p, batch)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // the next tick may do better; until then the deadline stands
			p.log.WarnContext(ctx, "lease not renewed", "error", err)
			if g.over() {
				g.cancel(errLeaseLost)
				return
			}
		case kept < len(batch.Messages):
			p.log.WarnContext(ctx, "lease lost while publishing", "rows", len(batch.Messages), "kept", kept)
			g.lose()
			return
		default:
			g.mu.Lock()
			g.deadline = lastSend(asked, p.policy.Lease)
			g.timer.Reset(time.Until(g.deadline))
			g.mu.Unlock()
		}
	}
}

func renewOnce(ctx context.Context, p *Processor, batch *driver.Batch) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.databaseTimeout())
	defer cancel()
	return p.store.Renew(ctx, batch.Lease)
}

// over reports whether it is too late to send.
func (g *leaseGuard) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return past(g.deadline, time.Now())
}

// past reports whether a deadline is over by either clock of this process. The monotonic one cannot
// be set, but stands still while the machine sleeps, and the leases go on meanwhile; the other one
// does not.
func past(deadline, now time.Time) bool {
	return !now.Before(deadline) || !now.Round(0).Before(deadline) // Round takes the monotonic reading away
}

func (g *leaseGuard) lose() {
	g.mu.Lock()
	g.deadline = time.Time{}
	g.mu.Unlock()
	g.cancel(errLeaseLost)
}

// stop ends the renewals and waits for the one in progress.
func (g *leaseGuard) stop() {
	defer g.timer.Stop()
	g.cancel(nil)
	<-g.done
}
