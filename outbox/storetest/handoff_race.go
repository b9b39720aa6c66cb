package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// What testHandOffOrder does.
const (
	fireWriters = 4
	fireKeys    = 3
	fireCommits = 50 // per writer
)

// fire is a broker that fails now and then, and keeps what was delivered first. While it has
// messages in hand, somebody takes leases away.
type fire struct {
	sync.Mutex
	random    *rand.Rand
	first     map[string][]string // by key, in the order of their first delivery
	seen      map[string]bool
	committed int
	delivered *sync.Cond
	unlease   func(part int)
}

// wait waits until all but a few of what was committed was delivered, or ctx has ended.
func (f *fire) wait(ctx context.Context, few int) {
	defer context.AfterFunc(ctx, f.delivered.Broadcast)()
	f.Lock()
	defer f.Unlock()
	for f.committed-len(f.seen) > few && ctx.Err() == nil {
		f.delivered.Wait()
	}
}

func (f *fire) commit(messages int) {
	f.Lock()
	defer f.Unlock()
	f.committed += messages
}

// Publish implements brokers.Broker.
func (f *fire) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	f.Lock()
	defer f.Unlock()
	defer f.delivered.Broadcast()
	if f.random.IntN(12) == 0 {
		f.unlease(f.random.IntN(3))
	}
	results := make([]brokers.Result, len(messages))
	failed := map[string]bool{}
	for i, m := range messages {
		switch {
		case failed[m.OrderingKey]:
			results[i].Err = brokers.ErrNotSent
			continue
		case f.random.IntN(40) == 0:
			results[i].Err = brokers.Retryable(errors.New("by chance"))
			failed[m.OrderingKey] = true
			continue
		case !f.seen[m.ID]:
			f.seen[m.ID] = true
			f.first[m.OrderingKey] = append(f.first[m.OrderingKey], m.ID)
		}
		if f.random.IntN(40) == 0 { // delivered, but the answer is lost
			results[i].Err = brokers.Retryable(errors.New("no answer"))
			failed[m.OrderingKey] = true
		}
	}
	return results
}

// Capabilities implements brokers.Broker.
func (*fire) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }

// Ping implements brokers.Broker.
func (*fire) Ping(context.Context) error { return nil }

// Close implements brokers.Broker.
func (*fire) Close(context.Context) error { return nil }

// testHandOffOrder lets two relays deliver, by hand-off and by claims, what writers commit and roll
// back, while messages fail and leases are taken away. First deliveries are in the order of ids,
// nothing is lost, and nothing comes that was rolled back.
func testHandOffOrder(t *table) {
	f := &fire{random: rand.New(rand.NewPCG(1, 2)), first: map[string][]string{}, seen: map[string]bool{}}
	f.delivered = sync.NewCond(f)
	f.unlease = func(part int) {
		_ = t.try("UPDATE {t} SET locked_until = "+t.sql.minus("locked_until", lease)+" WHERE status = 'processing' AND id % 3 = ?", part)
	}
	policy := outbox.Policy{
		HandOff: true, BatchSize: 8, PollMin: 20 * time.Millisecond, PollMax: 50 * time.Millisecond,
		Retry: outbox.Retry{MaxAttempts: 1000, BaseDelay: 5 * time.Millisecond, MaxDelay: 5 * time.Millisecond},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	engines := make([]*relay.Engine, 2)
	var running, writing sync.WaitGroup
	for i, store := range []admin.Store{t.Store, t.another()} {
		var err error
		engines[i], err = relay.NewEngine(relay.EngineConfig{
			Stores: map[string]driver.Delivery{"d": store}, Brokers: map[string]relay.Target{broker: {Broker: f, Policy: policy}},
			Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		running.Go(func() { _ = engines[i].Run(ctx) })
	}
	t.exec("CREATE TABLE {t}_keys (name varchar(20) NOT NULL PRIMARY KEY, n int NOT NULL)")
	for key := range fireKeys {
		t.exec("INSERT INTO {t}_keys (name, n) VALUES (?, 0)", fmt.Sprintf("key-%d", key))
	}
	for n := range fireWriters {
		writing.Go(func() { t.fire(ctx, f, engines, rand.New(rand.NewPCG(3, uint64(n)))) })
	}
	over := time.AfterFunc(raceTimeout, stop)
	defer over.Stop()
	writing.Wait()
	f.wait(ctx, 0)
	for t.open(ctx) > 0 && ctx.Err() == nil { // what was delivered is being marked
		f.wait(ctx, 0)
	}
	require.NoError(t, ctx.Err(), "rows are still open")
	stop()
	running.Wait()

	for _, engine := range engines {
		t.Logf("%+v", engine.Stats()[0].HandOff) // how many of each kind there are is up to the machine; the tests of outbox bring each about
	}
	total := 0
	for key := range fireKeys {
		name := fmt.Sprintf("key-%d", key)
		committed := t.messageIDs(name)
		total += len(committed)
		for i, id := range f.first[name] {
			if i >= len(committed) || committed[i] != id {
				assert.Fail(t, "first deliveries out of order", "%s: the %d. one is %s, the row that was the %d. of %d", name, i+1, id, slices.Index(committed, id)+1, len(committed))
				break
			}
		}
	}
	assert.Len(t, f.seen, total)
}

// fire commits and rolls back, with and without a place.
func (t *table) fire(ctx context.Context, f *fire, engines []*relay.Engine, random *rand.Rand) {
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	if !assert.NoError(t, err) {
		return
	}
	for range fireCommits {
		key := fmt.Sprintf("key-%d", random.IntN(fireKeys))
		rows := make([]outbox.Row, 1+random.IntN(2))
		for i := range rows {
			rows[i] = newRow(key)
		}
		engine, commit := engines[random.IntN(2)], random.IntN(4) > 0
		var place *outbox.Reservation
		err := t.inTx(ctx, func(tx outbox.Execer) error {
			if _, err := tx.ExecContext(ctx, t.render("UPDATE {t}_keys SET n = n + 1 WHERE name = ?"), key); err != nil {
				return err
			}
			if random.IntN(5) > 0 {
				place = engine.Reserve("d", t.Store.Dialect(), rows)
			}
			if err := inserter.InsertReserved(ctx, tx, rows, place); err != nil || commit {
				return err
			}
			return errRolledBack
		})
		if err == nil {
			f.commit(len(rows))
		}
		switch {
		case err == nil, errors.Is(err, errRolledBack) && random.IntN(4) > 0: // as after a savepoint that nobody saw
			place.Commit()
		default:
			place.Cancel()
		}
		if err != nil && !errors.Is(err, errRolledBack) && ctx.Err() == nil {
			assert.NoError(t, err)
			return
		}
		if place == nil && random.IntN(2) == 0 {
			engine.Wake("d", inserter.AppendWakeUps(nil, rows)...)
		}
		if random.IntN(4) > 0 { // where there is a backlog nothing is handed off
			f.wait(ctx, 1)
		}
	}
}

// open counts the rows that are not finished; it may be called by any goroutine.
func (t *table) open(ctx context.Context) (n int) {
	_ = t.DB.QueryRowContext(ctx, t.render("SELECT count(*) FROM {t} WHERE finished_at IS NULL")).Scan(&n)
	return n
}

var errRolledBack = errors.New("rolled back by the test")

// inTx runs f in a transaction, again where the database has only one writer and that is somebody
// else.
func (t *table) inTx(ctx context.Context, f func(outbox.Execer) error) error {
	tx, err := t.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after the commit there is nothing to roll back
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// messageIDs lists the messages of a key in the order of their rows.
func (t *table) messageIDs(key string) (ids []string) {
	t.Helper()
	rows, err := t.DB.QueryContext(t.Context(), t.render("SELECT "+t.sql.text("message_id")+" FROM {t} WHERE ordering_key = ? ORDER BY id"), key)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, uuid.MustParse(id).String())
	}
	require.NoError(t, rows.Err())
	return slices.Clip(ids)
}
