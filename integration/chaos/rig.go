//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// Run is one run of the rig: it builds the programs, starts servers and processes, does to them
// what the schedule says, lets the backlog drain, ends everything and compares the ledgers. An
// error is the rig's own failure; what Fanout does wrong is in the report. When ctx ends, the run
// is broken off. Nothing that it has started is left.
func Run(ctx context.Context, options Options) (*Report, error) {
	s := &fixture{options: options.withDefaults()}
	s.log = s.options.Log
	report, err := s.run(ctx)
	return report, errors.Join(err, s.tearDown())
}

func (s *fixture) run(ctx context.Context) (*Report, error) {
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	schedule := s.cluster.schedule(s.options)
	fmt.Fprintf(s.log, "seed %d\n", s.options.Seed)
	schedule.print(s.log)
	for _, name := range slices.Sorted(maps.Keys(s.processes)) {
		if err := s.processes[name].run(ctx); err != nil {
			return nil, err
		}
		p := s.processes[name]
		s.closers = append(s.closers, func() error { p.close(); return nil })
	}
	watch := s.watchSessions(ctx)
	began := time.Now()
	faults, err := s.perform(ctx, schedule, began)
	if err != nil {
		return nil, err
	}
	report := &Report{Seed: s.options.Seed, Broken: s.options.Broken, Faulty: time.Since(began), Schedule: schedule}
	if report.Drained, report.CaughtUp, err = s.drain(ctx); err != nil {
		return nil, err
	}
	s.endAll()
	peaks := watch()
	sessions, err := s.sessionsLeft(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.collect(ctx)
	if err != nil {
		return nil, err
	}
	found.faults, found.sessions, found.peakConns = faults, sessions, peaks
	s.report(report, found)
	return report, nil
}

// perform does the faults at their times, several at once where the schedule has it so, and returns
// when the time of faults is over and all are cured.
func (s *fixture) perform(ctx context.Context, schedule Schedule, began time.Time) ([]performed, error) {
	var (
		mu   sync.Mutex
		done []performed
		all  errgroup.Group
	)
	for _, fault := range schedule {
		pauseFor(ctx, time.Until(began.Add(fault.At)))
		if ctx.Err() != nil {
			break
		}
		all.Go(func() error {
			is := performed{Fault: fault, Began: time.Now()}
			err := s.inflict(ctx, fault)
			if errors.Is(err, errAway) {
				s.missed.Add(1)
				return nil
			}
			is.Ended = time.Now()
			mu.Lock()
			defer mu.Unlock()
			done = append(done, is)
			return err
		})
	}
	pauseFor(ctx, time.Until(began.Add(s.options.For)))
	return done, errors.Join(all.Wait(), context.Cause(ctx))
}

// inflict does one fault and returns when it is over.
func (s *fixture) inflict(ctx context.Context, f Fault) error {
	if serverOf[f.Kind] != "" {
		return s.servers.outage(ctx, f)
	}
	switch f.Kind {
	case Kill:
		s.processes[f.Target].end(sigkill, f.For, f.Skew)
		pauseFor(ctx, f.For)
	case Term:
		s.processes[f.Target].end(sigterm, f.For, f.Skew)
		pauseFor(ctx, f.For)
	case Stop:
		s.processes[f.Target].hold(ctx, f.For, func() {})
	case StopInPipeline:
		return s.stopInPipeline(ctx, f)
	case LockRows, UpdateRows:
		return s.holdRows(ctx, f)
	default:
		l := s.network.links[f.Target]
		if err := l.impair(f.Kind, f.Amount); err != nil {
			return err
		}
		pauseFor(ctx, f.For)
		return l.heal(ctx, f.Kind)
	}
	return nil
}

// drain ends the producers and waits until every row is final, and then until consumers have seen
// and handled everything, or neither has come further for as long as it may take.
func (s *fixture) drain(ctx context.Context) (rows, consumers time.Duration, err error) {
	for _, name := range s.cluster.producers {
		s.processes[name].close()
	}
	rows = s.dwindle(ctx, s.openRows)
	consumers = s.dwindle(ctx, s.behind)
	return rows, consumers, context.Cause(ctx)
}

// dwindle waits until nothing is left, or for as long as a backlog may stand still, and returns how
// long that took. Where a server that takes a minute to start was out for most of a run, what it
// holds is worked off for longer than that; a consumer that is stuck is not waited for.
func (s *fixture) dwindle(ctx context.Context, left func(context.Context) (int64, error)) time.Duration {
	began := time.Now()
	least, since := int64(math.MaxInt64), began
	for ctx.Err() == nil && time.Since(since) < s.options.Drain {
		asking, cancel := context.WithTimeout(ctx, s.options.Drain)
		n, err := left(asking)
		cancel()
		switch {
		case err != nil:
		case n == 0:
			return time.Since(began)
		case n < least:
			least, since = n, time.Now()
		}
		pauseFor(ctx, 100*time.Millisecond)
	}
	return time.Since(began)
}

// endAll ends all processes in good order.
func (s *fixture) endAll() {
	var all sync.WaitGroup
	for _, p := range s.processes {
		all.Go(p.close)
	}
	all.Wait()
}

// report sums up.
func (s *fixture) report(r *Report, e *evidence) {
	r.Brokers, r.Violations = e.judge()
	r.Consumers = e.consumers
	r.Sessions, r.Graceful, r.LeaseLost, r.Performed = e.sessions, e.ended, e.leaseLost, map[Kind]int{}
	for _, f := range e.faults {
		r.Performed[f.Kind]++
	}
	for _, name := range s.without {
		r.Skipped = append(r.Skipped, fmt.Sprintf("the broker %s, whose server is not on this machine", name))
	}
	for _, at := range s.servers.all() {
		if !at.ours() && len(at.signals) > 0 {
			r.Skipped = append(r.Skipped, fmt.Sprintf("all faults of the server %s, which is not the rig's own", at.name))
		}
	}
	r.InPipeline, r.Locked = s.inPipeline.Load(), s.locked.Load()
	if missed := s.missed.Load(); missed > 0 {
		r.Skipped = append(r.Skipped, fmt.Sprintf("%d faults of servers that were not back from the last one", missed))
	}
	r.Producers.Events = len(e.facts)
	for _, is := range e.outcomes {
		switch is.outcome {
		case scenario.Committed:
			r.Producers.Committed++
		case scenario.RolledBack:
			r.Producers.RolledBack++
		case scenario.Unknown:
			r.Producers.Unknown++
		}
		if is.completed {
			r.Producers.Completed++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.processes)) {
		p := s.processes[name]
		about := ProcessReport{Name: name, Starts: len(p.starts), Away: p.away, PeakMemory: p.peak, PeakConns: e.peakConns[name]}
		for _, start := range p.starts {
			if start.skew != 0 {
				about.WrongClocks++
			}
		}
		r.Processes = append(r.Processes, about)
	}
}
