// Package tenants keeps the databases of tenants, which come and go while a relay runs: it asks a
// source which there are, opens those that have something to do, and closes those that have had
// nothing to do for a while. Of a closed one nothing is left but an entry in memory; all of them are
// visited in turn, by few connections at a time. The package knows nothing of configurations,
// brokers and rows.
package tenants

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Defaults and bounds.
const (
	// DefaultEvery is how often the source is asked.
	DefaultEvery = 10 * time.Second
	// DefaultVisitEvery is how often a sleeping tenant is visited.
	DefaultVisitEvery = 30 * time.Second
	// LongestVisitEvery keeps heartbeats of sleeping tenants young enough.
	LongestVisitEvery = time.Minute
	// DefaultIdleAfter is how long a tenant has nothing to do before it is closed.
	DefaultIdleAfter = time.Minute
	// DefaultVisits is how many tenants are visited or opened at a time.
	DefaultVisits = 4
	// DefaultMaxAwake is how many tenants are open at a time.
	DefaultMaxAwake = 20

	// visitTime bounds what a tenant that does not answer takes from the others.
	visitTime = 5 * time.Second
	// purgeTime bounds the purge of a tenant that sleeps.
	purgeTime = 5 * time.Second
	// openTime bounds the opening of a tenant.
	openTime = 10 * time.Second
	// leaveTime bounds the last visits to sleeping tenants when the process stops.
	leaveTime = 10 * time.Second
	// listTime bounds one question to the source.
	listTime = 10 * time.Second
	// oldestBeat is the age that the heartbeat of a sleeping tenant does not reach. From 2 min on a
	// process counts as silent.
	oldestBeat = 100 * time.Second
	// longestBackoff is, in intervals between visits, the longest delay before a tenant that fails is
	// visited again.
	longestBackoff = 4
	// pauseWarning is the least time between two warnings that tenants wait.
	pauseWarning = 10 * time.Minute
	// activityChecks is how often in the time after which it counts as idle a tenant is looked at.
	activityChecks = 6
)

// Listing is what a source says.
type Listing[T comparable] struct {
	// Tenants by name: all of them.
	Tenants map[string]T
	// Refused entries, by name, are neither new tenants nor a reason to close one.
	Refused map[string]error
}

// Visitor is what a visit does to the database of a tenant.
type Visitor interface {
	// Check says whether a relay can work with the database. It is asked at the first visit.
	Check(ctx context.Context) error
	// Work reports whether there is something to do for a relay.
	Work(ctx context.Context) (bool, error)
	// Heartbeat says to others that a relay looks after the tenant, and Leave that it ceases to.
	Heartbeat(ctx context.Context) error
	Leave(ctx context.Context) error
	// Purge removes what is old. It logs its own errors.
	Purge(ctx context.Context)
	// Close releases the connections.
	Close() error
}

// Session is a tenant that is open.
type Session interface {
	Visitor

	// Run delivers until ctx ends, and then finishes or releases what is claimed. It begins with a
	// poll. It leaves (see Visitor) at the end.
	Run(ctx context.Context) error
	// Wake makes it poll now.
	Wake()
	// Activity changes while there is something to do.
	Activity() int64
}

// Config of a supervisor, which has no defaults of its own.
type Config[T comparable] struct {
	// List asks the source. After an error all stays as it is.
	List func(ctx context.Context) (Listing[T], error)
	// Visit prepares a visit, and Open a session. What they return is closed by the supervisor.
	Visit func(ctx context.Context, name string, settings T) (Visitor, error)
	Open  func(ctx context.Context, name string, settings T) (Session, error)

	Every, VisitEvery, IdleAfter time.Duration
	// PurgeEvery is the time between two purges of a tenant.
	PurgeEvery time.Duration
	Visits     int
	// MaxAwake is how many tenants are open at a time. Where more have something to do they take turns.
	MaxAwake int
	Log      *slog.Logger
	// Remedy says what to do about an error of a tenant, or of the list, whose tenant is "", for the
	// log; "" where it is not known.
	Remedy func(tenant string, err error) (cause, remedy string)
}

// States of a tenant, as [Supervisor.States] counts them.
const (
	// StateAsleep is a tenant without a connection that is visited.
	StateAsleep = "asleep"
	// StateAwake is one that is open.
	StateAwake = "awake"
	// StateWaiting is one that has something to do, and is not open since others are.
	StateWaiting = "waiting"
	// StateFailing is one that could not be visited or opened the last time.
	StateFailing = "failing"
)

// A Supervisor keeps the tenants. It is safe for concurrent use.
type Supervisor[T comparable] struct {
	cfg             Config[T]
	listed          listing
	visits, failing queue         // of those that are visited or opened, and, of them, failed the last time
	awake           queue         // of those that are open
	wanted          chan struct{} // a place among those

	mu      sync.Mutex
	tenants map[string]*tenant[T]
	ending  map[string]*tenant[T] // that are not listed any more, or were replaced
	began   time.Time
	count   int       // of tenants that there ever were, for their phases
	warned  time.Time // when it was last said that tenants wait
	group   sync.WaitGroup
}

// New makes a supervisor that does nothing until Run.
func New[T comparable](cfg Config[T]) *Supervisor[T] {
	return &Supervisor[T]{
		cfg: cfg, tenants: map[string]*tenant[T]{}, ending: map[string]*tenant[T]{}, listed: listing{refused: map[string]string{}}, wanted: make(chan struct{}),
		visits: queue{free: cfg.Visits}, failing: queue{free: max(1, cfg.Visits/4)}, awake: queue{free: cfg.MaxAwake},
	}
}

// Run keeps the tenants until ctx ends, and then closes them all. Run a supervisor once.
func (s *Supervisor[T]) Run(ctx context.Context) error {
	s.began = time.Now()
	ticker := time.NewTicker(s.cfg.Every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		s.refresh(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	s.group.Wait()
	return nil
}

// Wake says that rows were committed in the database of a tenant: one that sleeps is opened at once.
// It never blocks, and says nothing of tenants that are not there.
func (s *Supervisor[T]) Wake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tenants[name]
	if !ok {
		return
	}
	if t.session != nil && !t.closing {
		t.session.Wake()
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Session is the open session of a tenant; false where it sleeps, or is about to.
func (s *Supervisor[T]) Session(name string) (Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tenants[name]
	if !ok || t.session == nil || t.closing {
		return nil, false
	}
	return t.session, true
}

// Sessions are all that are open, by the tenant's name.
func (s *Supervisor[T]) Sessions() map[string]Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	sessions := map[string]Session{}
	for name, t := range s.tenants {
		if t.session != nil && !t.closing {
			sessions[name] = t.session
		}
	}
	return sessions
}

// States counts the tenants by state; every state is there.
func (s *Supervisor[T]) States() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := map[string]int{StateAsleep: 0, StateAwake: 0, StateWaiting: 0, StateFailing: 0}
	for _, t := range s.tenants {
		switch {
		case t.session != nil:
			states[StateAwake]++
		case t.waits:
			states[StateWaiting]++
		case t.failures > 0:
			states[StateFailing]++
		default:
			states[StateAsleep]++
		}
	}
	return states
}
