package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

// Pages asks how long people wait who look at a large table: each method of [admin.Administration]
// and [admin.Administration], with the sizes that the console uses. Half of the rows are finished;
// of the open ones some are claimed, have failed, or stand behind blocks.
type Pages struct {
	// Rows of the table, of all brokers together; one half is finished.
	Rows int64
	// Brokers among which the rows are dealt out.
	Brokers int
	// Payload of each row, in bytes.
	Payload int
	// Calls of each method to measure in each run.
	Calls int
	// Database that an earlier run has left, as a URL; empty = one is made, filled and dropped.
	Database string
}

// DefaultPages are the sizes of a full run.
func DefaultPages() Pages { return Pages{Rows: 10_000_000, Brokers: 4, Payload: 200, Calls: 200} }

// ShortPages are sizes that only show whether the harness works.
func ShortPages() Pages { return Pages{Rows: 40_000, Brokers: 2, Payload: 50, Calls: 3} }

const (
	// pagesTarget is the longest that one call in a hundred may take, in milliseconds.
	pagesTarget = 200
	// pagesWarm is how many calls of each kind go before those that are measured.
	pagesWarm = 20
	// pagesInHand is how many rows of each broker are claimed.
	pagesInHand = 2000
	// pagesChunk is how many rows one transaction writes.
	pagesChunk = 250_000

	// What the console asks for.
	pagesCount     = 10_000 // most rows to count
	pagesLimit     = 50     // rows of a page
	pagesFailures  = 500    // rows of a page of failures
	pagesScan      = 5000   // rows to look at
	pagesKeys      = 200    // blocked keys
	pagesFollowers = 1000   // most followers of a key to count
)

// Check implements Scenario.
func (p Pages) Check(int) error {
	if least := int64(p.Brokers) * 20_000; p.Brokers < 1 || p.Rows < least || p.Calls < 1 || p.Payload < 0 {
		return fmt.Errorf("%d rows of %d brokers, %d calls: use at least 1 broker, 20000 rows of each, 1 call, and a payload of at least 0 bytes", p.Rows, p.Brokers, p.Calls)
	}
	return nil
}

// pagesTable is the table's name.
const pagesTable = "outbox"

// Run implements Scenario.
func (p Pages) Run(ctx context.Context, o *Options) error {
	if p.Database != "" {
		store, err := postgres.Open(ctx, p.Database, pagesTable, postgres.WithMaxConns(1))
		if err != nil {
			return err
		}
		return errors.Join(p.measure(ctx, o, store), store.Close())
	}
	return o.withDatabase(ctx, "pages", func(database *fixture.Database) error {
		table, err := database.Table(ctx, pagesTable, 1)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := p.fill(ctx, o, table); err != nil {
			return err
		}
		if err := database.Checkpoint(ctx, o.Log); err != nil {
			return err
		}
		o.logf("pages: the table of %d rows was filled and vacuumed in %s", p.Rows, time.Since(began).Round(time.Second))
		return p.measure(ctx, o, table.Store)
	})
}

func (p Pages) measure(ctx context.Context, o *Options, store *postgres.Store) error {
	for run := range o.Runs {
		look := &looker{Pages: p, store: store, random: rand.New(rand.NewPCG(o.Seed, uint64(run)))}
		if err := look.measure(ctx, o); err != nil {
			return err
		}
		o.logf("pages: run %d of %d: done", run+1, o.Runs)
	}
	return nil
}

func (p Pages) broker(i int) string { return fmt.Sprintf("broker-%d", i) }

func (p Pages) fill(ctx context.Context, o *Options, table *fixture.Table) error {
	brokers := make([]string, p.Brokers)
	for i := range brokers {
		brokers[i] = p.broker(i)
	}
	const keys = 100_000
	half := p.Rows / 2
	for first := int64(0); first < p.Rows; {
		finished := first < half
		last := min(first+pagesChunk, p.Rows)
		if finished {
			last = min(last, half)
		}
		if err := table.Exec(ctx, readSQL("pages_fill"), first, last-1, brokers, keys, p.Payload, finished, pagesInHand, half/int64(p.Brokers)); err != nil {
			return fmt.Errorf("scenario: fill the table: %w", err)
		}
		if first = last; first%(4*pagesChunk) == 0 {
			o.logf("pages: %d of %d rows written", first, p.Rows)
		}
	}
	if err := table.Exec(ctx, readSQL("pages_blocks")); err != nil {
		return fmt.Errorf("scenario: write the blocks: %w", err)
	}
	return table.Vacuum(ctx)
}

// looker is an operator who looks at the table.
type looker struct {
	Pages

	store  *postgres.Store
	random *rand.Rand
}

// glance is one way to look; it fails where it does not see what is there.
type glance struct {
	name string
	do   func(ctx context.Context, broker string) error
}

// measure makes all calls, the kinds in turn, so that none of them has the server's memory for
// itself.
func (l *looker) measure(ctx context.Context, o *Options) error {
	glances := l.glances()
	times := make([][]time.Duration, len(glances))
	warm := min(pagesWarm, l.Calls)
	for call := range warm + l.Calls {
		for _, i := range l.random.Perm(len(glances)) {
			broker := l.broker(l.random.IntN(l.Brokers))
			began := time.Now()
			if err := glances[i].do(ctx, broker); err != nil {
				return fmt.Errorf("%s of %s: %w", glances[i].name, broker, err)
			}
			if took := time.Since(began); call >= warm {
				times[i] = append(times[i], took)
			}
		}
	}
	s := o.Report.Scenario("pages")
	for i := range glances {
		s.Add(glances[i].name, "p50", "ms", report.Milliseconds(report.Percentile(times[i], 0.5)))
		s.AddAtMost(glances[i].name, "p99", "ms", report.Milliseconds(report.Percentile(times[i], 0.99)), pagesTarget)
		s.Add(glances[i].name, "max", "ms", report.Milliseconds(report.Percentile(times[i], 1)))
	}
	return nil
}

var errUnseen = errors.New("scenario: what is there was not seen")

func seen(ok bool, err error) error {
	if err == nil && !ok {
		return errUnseen
	}
	return err
}

func (l *looker) glances() []glance {
	list := func(name string, want int, change func(*admin.ListRequest)) glance {
		return glance{name, func(ctx context.Context, broker string) error {
			request := admin.ListRequest{Broker: broker, Limit: pagesLimit, Scan: pagesScan}
			change(&request)
			page, err := l.store.List(ctx, request)
			return seen(len(page.Records) >= want, err)
		}}
	}
	glances := []glance{
		{"overview", func(ctx context.Context, _ string) error {
			overview, err := l.store.Overview(ctx, pagesCount)
			return seen(len(overview) == l.Brokers && overview[0].Counts[outbox.StatusProcessing].N > 0, err)
		}},
		{"message", func(ctx context.Context, _ string) error {
			records, err := l.store.Message(ctx, l.anyMessage().String())
			return seen(len(records) == 1, err)
		}},
		{"blocked", func(ctx context.Context, broker string) error {
			keys, err := l.store.KeyBlocks(ctx, broker, pagesKeys, pagesFollowers)
			return seen(len(keys.Keys) == pagesKeys, err)
		}},
		{"audit", func(ctx context.Context, broker string) error {
			id, err := l.store.BeginAudit(ctx, admin.AuditEntry{Actor: "bench", Via: "go", Action: "requeue", Broker: broker})
			if err == nil {
				err = l.store.EndAudit(ctx, id, 1, "")
			}
			if err != nil {
				return err
			}
			entries, err := l.store.Audit(ctx, 0, pagesLimit)
			return seen(len(entries) > 0 && entries[0].ID == id, err)
		}},
		list("list processing", 0, func(r *admin.ListRequest) { r.Status = outbox.StatusProcessing }),
		list("list pending, a key", 0, func(r *admin.ListRequest) { r.Status, r.Filter.Key = outbox.StatusPending, "blocked-1" }),
		list("list failed, 500", pagesFailures/100, func(r *admin.ListRequest) { r.Status, r.Limit = outbox.StatusFailed, pagesFailures }),
	}
	for _, status := range []outbox.Status{outbox.StatusPending, outbox.StatusFailed, outbox.StatusPublished, outbox.StatusAbandoned} {
		glances = append(glances,
			list("list "+string(status), 1, func(r *admin.ListRequest) { r.Status = status }),
			list("list "+string(status)+", none matches", 0, func(r *admin.ListRequest) { r.Status, r.Filter.Type = status, "Nothing*" }),
			list("list "+string(status)+", deep", 0, func(r *admin.ListRequest) { r.Status, r.After = status, l.anywhere(status) }))
	}
	return glances
}

// anyMessage is the id of a row.
func (l *looker) anyMessage() (id uuid.UUID) {
	n := l.random.Int64N(l.Rows)
	for i := range 8 {
		id[15-i] = byte(n >> (8 * i)) //nolint:gosec // the lowest eight bits are meant
	}
	return id
}

// anywhere is a place in a list.
func (l *looker) anywhere(status outbox.Status) admin.Position {
	at := admin.Position{ID: l.Rows/2 + l.random.Int64N(l.Rows/2)}
	if status.Terminal() {
		batches := l.Rows / 2 / int64(l.Brokers) / 500
		day := time.Now().UTC().Truncate(24 * time.Hour)
		at = admin.Position{Time: day.Add(-7*24*time.Hour + time.Duration(l.random.Int64N(batches))*50*time.Millisecond), ID: l.random.Int64N(l.Rows / 2)}
	}
	return at
}
