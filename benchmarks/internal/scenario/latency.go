package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/outbox"
)

// latency asks how long a message takes from the commit of its transaction until a consumer that
// waits at a Redis stream has it: with a relay that the writer wakes, with one that shares nothing with
// the writer, and beside a loop written by hand. The cases take turns.
type latency struct {
	span    time.Duration // of a turn
	turns   int
	rate    int // transactions in a second, by one connection
	payload int
	warm    int // transactions of a turn that are not counted
}

func newLatency(s *Sizes) Scenario {
	l := &latency{warm: 25}
	if s.Short {
		l.warm = 2
	}
	s.duration(&l.span, "for", 4*time.Second, 200*time.Millisecond, "how long transactions are written in each turn")
	s.number(&l.turns, "turns", 2, 1, "turns of each case in each run")
	s.number(&l.rate, "rate", 50, 50, "transactions per second")
	s.number(&l.payload, "payload", 500, 100, "bytes of payload")
	return l
}

// Limits of P3, as a multiple of a loop by hand in the same process, and of P4, in milliseconds.
// Without a notification it is the default poll.min, since messages come more often than poll.max.
const (
	sameProcessLimit = 1.3
	notifiedLimit    = 1.2
	pollingLimit     = 20
)

// path is a way from a commit to the broker.
type path struct {
	name  string
	start func(ctx context.Context, t *turn) (write writer, end func() error, err error)
	times [][]time.Duration // by run
}

// writer commits the transaction of the n-th order. Its context has the stamp of the commit.
type writer func(ctx context.Context, n int64) error

// allPaths begin with the one that the others are compared with.
func allPaths() []*path {
	return []*path{
		{name: "by hand", start: startHand},
		{name: "fanout, same process", start: startFanout(false, true)},
		{name: "fanout, relay apart, notified", start: startFanout(true, true)},
		{name: "fanout, relay apart, polling", start: startFanout(true, false)},
	}
}

// Run implements Scenario.
func (l *latency) Run(ctx context.Context, o *Options) (err error) {
	streams, err := openRedis(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, streams.close(ctx)) }()
	paths := allPaths()
	err = o.eachRun("latency", func(run int) error {
		random := o.random(run)
		for range l.turns {
			for _, i := range random.Perm(len(paths)) {
				t := &turn{latency: l, streams: streams, stream: fmt.Sprintf("fanout-bench-%d", random.Uint64())}
				times, err := t.run(ctx, o, paths[i], random)
				if err != nil {
					return fmt.Errorf("%s: %w", paths[i].name, err)
				}
				if len(paths[i].times) == run {
					paths[i].times = append(paths[i].times, nil)
				}
				paths[i].times[run] = append(paths[i].times[run], times...)
			}
		}
		return nil
	})
	if err == nil {
		l.report(o.Report.Scenario("latency"), paths)
	}
	return err
}

func (l *latency) report(s *report.Scenario, paths []*path) {
	for _, p := range paths {
		for run, times := range p.times {
			p50, _ := s.AddTimes(p.name, "", times)
			switch {
			case strings.HasSuffix(p.name, "notified"):
				p50.LimitAtMost(notifiedLimit, "P4")
			case strings.HasSuffix(p.name, "polling"):
				p50.LimitAtMost(pollingLimit, "P4")
			}
			if p == paths[0] {
				continue
			}
			for _, share := range []float64{0.5, 0.99} {
				figure := s.AddRatio(p.name, "times by hand", share, times, paths[0].times[run])
				if strings.HasSuffix(p.name, "same process") {
					figure.LimitAtMost(sameProcessLimit, "P3")
				}
			}
		}
	}
}

// turn is what a path runs on in one of its turns.
type turn struct {
	*latency
	*fixture.Table

	streams *redisStreams
	stream  string
}

// run measures a path for a while.
func (t *turn) run(ctx context.Context, o *Options, p *path, random *rand.Rand) (times []time.Duration, err error) {
	err = o.withTable(ctx, outbox.Postgres, 1, func(table *fixture.Table) error {
		t.Table = table
		if err := t.Exec(ctx, "CREATE TABLE orders (id bigint NOT NULL PRIMARY KEY, note text NOT NULL)"); err != nil {
			return err
		}
		write, end, err := p.start(ctx, t)
		if err != nil {
			return err
		}
		times, err = t.measure(ctx, write, random)
		return errors.Join(err, end(), t.streams.remove(context.WithoutCancel(ctx), t.stream))
	})
	return times, err
}

// measure writes and reads at the same time.
func (t *turn) measure(ctx context.Context, write writer, random *rand.Rand) ([]time.Duration, error) {
	total := t.warm + max(1, int(t.span.Seconds()*float64(t.rate)))
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	var commits, arrivals []time.Time
	group.Go(func() (err error) {
		arrivals, err = t.read(ctx, total)
		return err
	})
	group.Go(func() (err error) {
		commits, err = t.write(ctx, total, write, random)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	times := make([]time.Duration, 0, total)
	for n := t.warm; n < total; n++ {
		times = append(times, arrivals[n].Sub(commits[n]))
	}
	return times, nil
}

// stamp is when a transaction was committed.
type stamp struct{ at time.Time }

type stampKey struct{}

// commitClock stamps the moment at which the server's answer to a commit is there. The writer's work
// after it counts as latency.
type commitClock struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (commitClock) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (commitClock) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if s, wanted := ctx.Value(stampKey{}).(*stamp); wanted && data.CommandTag.String() == "COMMIT" {
		s.at = time.Now()
	}
}

// write commits so many transactions at random moments, so that none keeps step with another's
// polling. It returns when each was committed.
func (t *turn) write(ctx context.Context, total int, write writer, random *rand.Rand) ([]time.Time, error) {
	commits, next := make([]time.Time, total), time.Now()
	for n := range commits {
		next = next.Add(time.Duration(random.Float64() * 2 * float64(time.Second) / float64(t.rate)))
		if err := pause(ctx, time.Until(next)); err != nil {
			return nil, err
		}
		var s stamp
		if err := write(context.WithValue(ctx, stampKey{}, &s), int64(n)); err != nil {
			return nil, err
		}
		if commits[n] = s.at; s.at.IsZero() {
			return nil, errors.New("scenario: a transaction ended without a commit")
		}
	}
	return commits, nil
}

// read waits at the stream and returns when each message was there.
func (t *turn) read(ctx context.Context, total int) ([]time.Time, error) {
	arrivals := make([]time.Time, total)
	for got, last := 0, "0"; got < total; {
		answers, err := t.streams.client.XRead(ctx, &redis.XReadArgs{Streams: []string{t.stream, last}, Block: time.Second}).Result()
		at := time.Now()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%d of %d messages arrived: %w", got, total, err)
		}
		for _, entry := range answers[0].Messages {
			last = entry.ID
			text, _ := entry.Values["data"].(string)
			var m struct { // Fanout's events have metadata beside the data
				note

				Data *note `json:"data"`
			}
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				return nil, err
			}
			if m.Data != nil {
				m.note = *m.Data
			}
			if m.Seq < 0 || m.Seq >= int64(total) || !arrivals[m.Seq].IsZero() {
				return nil, fmt.Errorf("scenario: message %d arrived twice, or was never written", m.Seq)
			}
			arrivals[m.Seq] = at
			got++
		}
	}
	return arrivals, nil
}
