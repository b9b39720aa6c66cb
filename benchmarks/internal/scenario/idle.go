package scenario

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// idle asks what an engine costs that has nothing to do.
type idle struct {
	brokers []int
	pollMax time.Duration
	span    time.Duration
}

func newIdle(s *Sizes) Scenario {
	i := &idle{}
	s.numbers(&i.brokers, "brokers", []int{1, 8}, []int{1, 3}, "numbers of brokers")
	s.duration(&i.pollMax, "poll-max", 10*time.Second, 50*time.Millisecond, "longest time between two polls")
	s.duration(&i.span, "for", 100*time.Second, 200*time.Millisecond, "how long is measured, after the time of three polls")
	return i
}

const idleLimit = 0.2 // statements per second and broker

// Run implements Scenario.
func (i *idle) Run(ctx context.Context, o *Options) error {
	return o.eachRun("idle", func(int) error {
		for _, n := range i.brokers {
			err := o.withTable(ctx, outbox.Postgres, 2, func(table *fixture.Table) error { return i.measure(ctx, o.Report.Scenario("idle"), table, n) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (i *idle) measure(ctx context.Context, s *report.Scenario, table *fixture.Table, n int) error {
	config, err := pgxpool.ParseConfig(table.DSN)
	if err != nil {
		return err
	}
	var statements atomic.Int64
	config.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		return &countedConn{Conn: conn, statements: &statements}, nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(pool, outbox.DefaultTable)
	if err != nil {
		return err
	}
	targets := map[string]relay.Target{}
	for n := range n {
		targets[fmt.Sprintf("broker-%d", n)] = relay.Target{Broker: &recorder{}, Policy: outbox.Policy{PollMax: i.pollMax}}
	}
	return deliver(ctx, store, targets, func(ctx context.Context, _ *relay.Engine) error {
		if err := pause(ctx, 3*i.pollMax); err != nil { // the time between polls doubles up to the longest
			return err
		}
		before := statements.Load()
		cost, err := table.Spend(ctx, func() error { return pause(ctx, i.span) })
		if err != nil {
			return err
		}
		sent, of, seconds := statements.Load()-before, plural(n, "broker"), cost.Took.Seconds()
		if least := n * int(i.span/i.pollMax-1); int(sent) < least {
			return fmt.Errorf("scenario: %d statements were counted for at least %d polls", sent, least)
		}
		s.Add(of, "statements of each broker", "/s", float64(sent)/seconds/float64(n)).LimitAtMost(idleLimit, "P11")
		s.Add(of, "CPU of the process", "ms/s", report.Milliseconds(cost.CPU)/seconds)
		return nil
	})
}

// countedConn counts the statements that the server is told to execute, in its protocol.
type countedConn struct {
	net.Conn

	statements *atomic.Int64
	started    bool
	partial    []byte // of a message
}

// Write implements net.Conn. One goroutine writes at a time.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.partial = append(c.partial, p[:n]...)
	for c.next() {
	}
	return n, err
}

// next takes one whole message away: a letter, which the very first message does not have, the
// length without the letter, and a text.
func (c *countedConn) next() bool {
	const word = 4
	letter := 0
	if c.started {
		letter = 1
	}
	if len(c.partial) < letter+word {
		return false
	}
	length := letter + int(binary.BigEndian.Uint32(c.partial[letter:]))
	if len(c.partial) < length {
		return false
	}
	if c.started && strings.IndexByte("QE", c.partial[0]) >= 0 { // a text, or execute what was prepared
		c.statements.Add(1)
	}
	c.started, c.partial = true, c.partial[length:]
	return true
}
