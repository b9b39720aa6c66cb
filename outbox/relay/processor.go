package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// A Processor delivers the rows of one broker in one database. It shares nothing with other
// processors but the broker's client, so a broker that hangs delays no other.
type Processor struct {
	database, broker string
	store            driver.Delivery
	target           brokers.Broker
	policy           outbox.Policy
	log              *slog.Logger
	sign             *signature.Keys   // nil: messages are not signed
	observer         ProcessorObserver // nil: none
	clock            *clock            // of the database; nil: it is ours

	shards *shardBoard
	// Who exchanges with the database has a place here; the others publish meanwhile, or wait for
	// one.
	exchanges chan struct{}
	// Failure classification uses history: what earlier calls have shown.
	history      history
	breaker      *breaker
	destinations destinations
	throttle     *throttle // nil: no limit
	sizing       *sizing
	keys         *keyPace
	isolation    *crashIsolation // shared by all processors of an engine
	wake         chan struct{}
	counters     counters
	stranded     atomic.Int64 // rows, as far as the sentinel knows
	inHand       inHand
	paused       atomic.Bool // as the last look found it
	running      atomic.Bool
	listener     *listener // shared by those of a database; nil: it does not listen
	failures     failures  // of single messages
	// To tell of rows that came back, of attributes that were left out, of panics, and of those of the broker.
	recovered, omitted, panicked, broken seldom
	// Calls to the database that fail; apart, since one may fail without the others.
	lookFailing, claimFailing, completeFailing, deferFailing, aloneFailing failure.Standing

	locked   lockedRows
	busy     busyShards
	outcomes *outcomes
}

// ProcessorConfig is what a processor needs.
type ProcessorConfig struct {
	// Database and Broker name what is processed, in rows, logs and metrics.
	Database, Broker string
	Store            driver.Delivery
	Target           brokers.Broker
	Policy           outbox.Policy
	// Sign signs each message as it is sent, with all of these keys. Default: nil, messages are not
	// signed.
	Sign *signature.Keys
	// Log gets what an operator must know. Default: slog.Default().
	Log *slog.Logger
	// Observer sees what the processor does. Default: none.
	Observer Observer
}

// NewProcessor checks the configuration and makes a processor that does nothing yet.
func NewProcessor(cfg ProcessorConfig) (*Processor, error) {
	if cfg.Broker == "" || cfg.Store == nil || cfg.Target == nil {
		return nil, errors.New("outbox: a processor needs a broker's name, a store and a broker")
	}
	if err := cfg.Policy.Validate(); err != nil {
		return nil, fmt.Errorf("broker %q: %w", cfg.Broker, err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Sign != nil {
		if err := cfg.Sign.CanSign(); err != nil {
			return nil, fmt.Errorf("broker %q: %w", cfg.Broker, err)
		}
	}
	policy := cfg.Policy.WithDefaults()
	p := &Processor{
		database: cfg.Database, broker: cfg.Broker, store: cfg.Store, target: cfg.Target, policy: policy, sign: cfg.Sign,
		sizing: newSizing(cfg.Target, &policy), keys: newKeyPace(cfg.Target.Capabilities().KeysInTurn, &policy),
		log:    cfg.Log.With("database", cfg.Database, "broker", cfg.Broker),
		shards: newShardBoard(cfg.Store.Shards()), exchanges: make(chan struct{}, policy.Workers),
		breaker: newBreaker(policy.Breaker), destinations: destinations{policy: policy.Breaker}, throttle: newThrottle(policy.Rate),
		history: history{refusals: refusals{keep: 2 * max(maxWait, policy.Breaker.MaxDelay, policy.Retry.MaxDelay)}}, // twice as long as they wait
		wake:    make(chan struct{}, 1), isolation: newCrashIsolation(),
	}
	p.failures = failures{log: p.log, broker: cfg.Broker}
	p.outcomes = newOutcomes(p)
	if cfg.Observer != nil {
		p.observer = cfg.Observer.Observe(cfg.Database, cfg.Broker)
	}
	return p, nil
}

// Run delivers until ctx ends, then finishes or releases what is claimed and returns nil. It
// survives errors of the database and of the broker. Run a processor once.
func (p *Processor) Run(ctx context.Context) error {
	// Publishes in progress may go on for a while after ctx has ended, and their outcomes must be
	// written after that.
	sending, stopSending := outlive(ctx, p.policy.ShutdownTimeout)
	defer stopSending()
	completing, stopCompleting := outlive(ctx, p.policy.ShutdownTimeout+completeTime)
	defer stopCompleting()

	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var group errgroup.Group
	p.shards.mark()     // rows may wait from before
	p.shards.stop(true) // until the first look: the broker may be paused
	p.running.Store(true)
	forget := context.AfterFunc(ctx, func() { p.running.Store(false) })
	defer func() { forget(); p.running.Store(false) }() // which may be before that function has run
	reports := p.failures.begin()
	defer p.failures.report(ctx, true)
	group.Go(func() error { p.poll(ctx, reports); return nil })
	name := fmt.Sprintf("%s/%d/%s/%s/", host, os.Getpid(), p.database, p.broker)
	name = strings.ToValidUTF8(name[max(0, len(name)-maxWorkerName):], "")
	for n := range min(hands*p.policy.Workers, p.store.Shards()) {
		w := &worker{
			p:         p,
			isolation: claimant{process: p.isolation},
			name:      name + strconv.Itoa(n),
			window:    p.policy.BatchSize,
			blocked:   true, // it does not know yet
		}
		group.Go(func() error { w.run(ctx, sending, completing); return nil })
	}
	done := make(chan struct{})
	var outcomes errgroup.Group
	outcomes.Go(func() error { p.outcomes.run(completing, done); return nil })
	err = group.Wait()
	close(done)
	return errors.Join(err, outcomes.Wait())
}

// hands is how many batches a worker has on their way: one is published while another one is
// claimed, and the one before it completed. They are of different shards, since a batch holds the
// keys of its shard until it is completed.
const hands = 2

// maxWorkerName is how many bytes of a worker's name there are before its number: the tables take 256.
const maxWorkerName = 250

// completeTime is how long, beyond the shutdown timeout, a stopping processor may take to write
// outcomes.
const completeTime = 5 * time.Second

// outlive returns a context that ends the given time after ctx.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, stop := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(by, stop)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() { forget(); stop() }
}

// Wake says that rows have come into these shards: a worker that is free claims them at once.
// [wakeup.Unknown], or a shard that the store does not have, makes the processor look for
// rows first. It never blocks; many calls count as one. A paused broker stays so: its shards are
// claimed from when it is resumed.
func (p *Processor) Wake(shards wakeup.Set) {
	if shards.Within(outbox.Classes * p.store.Shards()) {
		p.shards.markSet(shards)
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Stats returns the counters.
func (p *Processor) Stats() Stats {
	c := &p.counters
	stats := Stats{
		Database: p.database, Broker: p.broker, Claimed: c.claimed.Load(), Published: c.published.Load(),
		Retried: c.retried.Load(), Abandoned: c.abandoned.Load(), Released: c.released.Load(),
		LeaseLost: c.leaseLost.Load(), Unavailable: !p.breaker.closed(), Breaker: p.breaker.state(), UnavailableDestinations: p.destinations.unavailable(),
		Paused: p.paused.Load(), Listener: p.listener.state(), Leases: p.inHand.count(), Stranded: p.stranded.Load(),
	}
	return stats
}

// poll looks for shards with ready rows: after a wake-up at once, else at an interval that follows
// what polling finds.
func (p *Processor) poll(ctx context.Context, reports <-chan time.Time) {
	pace := newPace(&p.policy)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reports:
			p.survive(ctx, "report failures", func() { p.failures.report(ctx, false) })
			continue
		case <-p.wake:
		case <-timer.C:
		}
		busy := p.shards.busy()
		ready, err := driver.Readiness{}, errPanicked
		p.survive(ctx, "look for rows to deliver", func() { ready, err = p.look(ctx, busy) })
		if ctx.Err() != nil {
			return
		}
		p.heard(&p.lookFailing, "look for rows to deliver", err)
		if err == nil && len(ready.Shards) == 0 && busy == 0 {
			// Another relay may have delivered what this one could not claim.
			_, was := p.claimFailing.Reached()
			p.answers("claim rows", was)
		}
		if err == nil {
			p.pause(ctx, ready.Paused)
		}
		if len(ready.Shards) > 0 {
			p.shards.mark(ready.Shards...)
		}
		// Whether more than the claims in progress is waiting in a busy shard was not asked: as before.
		found := len(ready.Shards) > 0 || busy != 0 && pace.found
		timer.Reset(pace.next(found, p.counters.claimed.Load(), err))
	}
}

// pace says when a processor polls again. While polls find rows that can be claimed, of which no
// wake-up has told it, it polls after poll.min; else after twice as long each time, up to poll.max.
// Rows of wake-ups are claimed before a poll finds them, so that a processor that is woken for all
// rows polls seldom even under load.
type pace struct {
	least, most time.Duration
	interval    time.Duration
	found       bool  // by the last poll
	claimed     int64 // as of the last poll
}

// pollSpread is by which part of it an interval may be shorter, so that processes that were started
// at once, or that met the same outage, do not poll in step. It is never longer: poll.max is a
// promise.
const pollSpread = 0.2

func newPace(policy *outbox.Policy) *pace {
	return &pace{least: policy.PollMin, most: policy.PollMax, interval: policy.PollMin}
}

// next takes what a poll has found, how many rows the processor has claimed so far, and the poll's
// error.
func (p *pace) next(found bool, claimed int64, err error) time.Duration {
	again := false
	switch {
	case err != nil:
		p.interval = min(2*p.interval, p.most)
	case p.found && claimed != p.claimed: // a row may look ready and still have to wait for one before it
		p.interval = p.least
	default:
		again = found && !p.found // a first find: there may be more to come
		p.interval = min(2*p.interval, p.most)
	}
	p.found, p.claimed = found && err == nil, claimed
	if again {
		return p.least
	}
	return p.interval - time.Duration(pollSpread*rand.Float64()*float64(p.interval))
}

// errPanicked is how a look ended that did not return.
var errPanicked = errors.New("outbox: the relay panicked; its log has the stack")

// look asks which shards beside the busy ones hold something that is ready, or whether the broker
// is paused.
func (p *Processor) look(ctx context.Context, busy wakeup.Set) (driver.Readiness, error) {
	ctx, cancel := context.WithTimeout(ctx, p.databaseTimeout())
	defer cancel()
	return p.store.Ready(ctx, p.broker, busy)
}

// databaseTimeout bounds one call to the database: half a minute, or a quarter of a lease that is
// shorter, so that a renewal can be tried again before the lease ends.
func (p *Processor) databaseTimeout() time.Duration { return min(30*time.Second, p.policy.Lease/4) }

// heard notes how the database answered, and reports it when that is news.
func (p *Processor) heard(failing *failure.Standing, attempt string, err error) {
	if err == nil {
		_, was := failing.Works()
		p.answers(attempt, was)
	} else if failing.Failed(err) {
		cause, remedy := advised(err, asksDatabase)
		p.log.Error("database call failed", "remedy", remedy, "attempt", attempt, "error", cause)
	}
}

// completes notes that a completion was written.
func (p *Processor) completes() {
	_, was := p.completeFailing.Works()
	p.answers("complete a batch", was)
}

// answers reports that an attempt works again, if it did not.
func (p *Processor) answers(attempt string, again bool) {
	if again {
		p.log.Info("database answers again", "attempt", attempt)
	}
}
