package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func TestNewEngineReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := NewEngine(EngineConfig{})
	require.ErrorContains(t, err, "at least one database and one broker")
	_, err = NewEngine(EngineConfig{
		Stores:  map[string]driver.Delivery{"d": stub{}},
		Brokers: map[string]Target{"a": {Broker: taker{}, Policy: outbox.Policy{Workers: -1}}, "b": {Broker: taker{}, Policy: outbox.Policy{BatchSize: -1}}},
		Listen:  []string{"d"},
	})
	require.ErrorContains(t, err, `broker "a"`)
	require.ErrorContains(t, err, `broker "b"`)
	require.ErrorContains(t, err, `database "d": its store cannot listen`)
}

// lobby is a store that hands out one batch, and remembers what it is told and asked.
type lobby struct {
	stub

	mu      sync.Mutex
	batch   []driver.Message
	beats   []admin.Instance
	left    []uuid.UUID
	leftAt  time.Time // the last one
	backlog []string
	found   []string
	fail    error
	hang    bool
}

func (l *lobby) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	result, err := l.stub.Exchange(ctx, completion, claim)
	if claim != nil {
		lease := driver.Lease{Broker: claim.Broker, Shard: claim.Shard, Token: uuid.New(), Duration: claim.Lease}
		result.Batch = driver.Batch{Messages: l.batch, Seen: len(l.batch), Lease: lease}
		l.batch = nil
	}
	return result, err
}

func (l *lobby) Heartbeat(ctx context.Context, now admin.Instance) error {
	return l.hear(ctx, func() {
		now.SeenAt = time.Now() // as a store does
		l.beats = append(l.beats, now)
	})
}

func (l *lobby) Leave(ctx context.Context, id uuid.UUID) error {
	return l.hear(ctx, func() { l.left, l.leftAt = append(l.left, id), time.Now() })
}

func (l *lobby) Backlog(ctx context.Context) (backlog []admin.Backlog, err error) {
	err = l.hear(ctx, func() {
		for _, broker := range l.backlog {
			backlog = append(backlog, admin.Backlog{Broker: broker})
		}
	})
	return backlog, err
}

func (l *lobby) Watch(ctx context.Context) (found []admin.Finding, err error) {
	err = l.hear(ctx, func() {
		for _, problem := range l.found {
			found = append(found, admin.Finding{Topic: "vacuum", Message: problem})
		}
	})
	return found, err
}

func (l *lobby) hear(ctx context.Context, what func()) error {
	l.mu.Lock()
	hang := l.hang
	l.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail == nil {
		what()
	}
	return l.fail
}

func (l *lobby) set(change func(l *lobby)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// taken returns the heartbeats since the last call, and which instances have left.
func (l *lobby) taken() (beats []admin.Instance, left []uuid.UUID) {
	synctest.Wait()
	l.set(func(l *lobby) {
		beats, left = l.beats, l.left
		l.beats, l.left = nil, nil
	})
	return beats, left
}

// startEngine runs an engine whose broker takes its time until stop is called, which returns how
// long it took.
func startEngine(t *testing.T, store driver.Delivery, takes time.Duration, name string) (log *lines, stop func() time.Duration) {
	t.Helper()
	log = newLog(t)
	engine, err := NewEngine(EngineConfig{
		Stores: map[string]driver.Delivery{"db": store}, Brokers: map[string]Target{"b": {Broker: taker{takes: takes}, Policy: outbox.Policy{Workers: 1}}},
		Log: log.logger(0), Name: name, Version: "v1",
	})
	require.NoError(t, err)
	end := running(t, engine.Run)
	return log, func() time.Duration {
		began := time.Now()
		end()
		return time.Since(began)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, began := &lobby{}, time.Now()
		log, stop := startEngine(t, store, 0, "relay-7")
		time.Sleep(2*heartbeatEvery + time.Second)
		beats, left := store.taken()
		require.Len(t, beats, 3, "one at the start, and one at each interval")
		assert.Empty(t, left)
		host, err := os.Hostname()
		require.NoError(t, err)
		for n, beat := range beats {
			assert.Equal(t, time.Duration(n)*heartbeatEvery, beat.SeenAt.Sub(began))
			assert.Equal(t, admin.Instance{ID: beats[0].ID, Name: "relay-7", Host: host, PID: os.Getpid(), Version: "v1", SeenAt: beat.SeenAt}, beat)
		}
		assert.NotZero(t, beats[0].ID)
		stop()
		beats2, left := store.taken()
		assert.Empty(t, beats2)
		assert.Equal(t, []uuid.UUID{beats[0].ID}, left)
		assert.Zero(t, log.count("instances"))

		startEngine(t, store, 0, "")
		again, _ := store.taken()
		require.Len(t, again, 1)
		assert.Equal(t, host, again[0].Name, "a process without a name is called like its host")
		assert.NotEqual(t, beats[0].ID, again[0].ID, "each start has an id of its own")
	})
}

// What is claimed shows, also while a stop waits for it.
func TestHeartbeatWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		batch := []driver.Message{message(1), message(2)}
		store, began := &lobby{batch: batch}, time.Now()
		startEngine(t, store, 40*time.Second, "")
		time.Sleep(heartbeatEvery + time.Second)
		beats, _ := store.taken()
		require.Len(t, beats, 2)
		require.Len(t, beats[1].Work, 1)
		work := beats[1].Work[0]
		assert.True(t, work.Since.Equal(began))
		assert.Contains(t, work.Worker, "/db/b/0")
		assert.Equal(t, admin.Work{Worker: work.Worker, Broker: "b", Shard: work.Shard, Rows: 2, Since: work.Since}, work)
		time.Sleep(heartbeatEvery)
		beats, _ = store.taken()
		require.Len(t, beats, 1)
		assert.Empty(t, beats[0].Work, "it was completed")

		store.set(func(l *lobby) { l.batch = batch })
		_, stop := startEngine(t, store, 10*time.Second, "second")
		synctest.Wait()
		assert.Equal(t, 10*time.Second, stop(), "what is with the broker is finished")
		_, left := store.taken()
		assert.Len(t, left, 1)
		assert.Equal(t, time.Now(), store.leftAt, "and only then it leaves")
	})
}

// A registry that fails or hangs is reported once and holds up nothing.
func TestHeartbeatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &lobby{fail: errors.New("no such table"), batch: []driver.Message{message(1)}}
		log, stop := startEngine(t, store, 0, "")
		said := func(after time.Duration, what string) int {
			time.Sleep(after)
			synctest.Wait()
			return log.count("heartbeat", what)
		}
		assert.Equal(t, 1, said(10*heartbeatEvery, "no such table"))
		store.set(func(l *lobby) { l.fail = errors.New("permission denied") })
		assert.Equal(t, 1, said(10*heartbeatEvery, "permission denied"), "another cause")
		assert.Equal(t, 1, said(0, "no such table"))
		assert.Empty(t, store.batch, "delivery goes on")
		store.set(func(l *lobby) { l.fail = nil })
		assert.Equal(t, 1, said(heartbeatEvery, "heartbeat restored"))
		store.set(func(l *lobby) { l.hang = true })
		assert.Equal(t, 1, said(10*heartbeatEvery, "deadline exceeded"))
		assert.LessOrEqual(t, stop(), heartbeatTime)
		assert.Equal(t, 1, said(0, "deadline exceeded"))
	})
}

// A relay says in its heartbeats which brokers and destinations are unavailable, and that they are
// again. What the process is called may be asked while the engine runs.
func TestHeartbeatsSayWhatIsUnavailable(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := failingWith(errMissing, to("missing"))
		r := newRig(t, path, broker, outbox.Policy{})
		r.fill(4, func(i int) row {
			return row{key: fmt.Sprint("key-", i), name: fmt.Sprint("m", i), stream: []string{"missing", "there"}[i%2]}
		})
		engine, _ := r.engine(EngineConfig{Brokers: map[string]Target{"b": {Broker: broker}}, Name: "me"})
		said := func() []admin.Unavailable {
			t.Helper()
			instances, err := r.store.Instances(t.Context())
			require.NoError(t, err)
			require.Len(t, instances, 1)
			require.Empty(t, instances[0].Unreadable)
			require.Equal(t, engine.Instance().ID, instances[0].ID)
			require.Equal(t, "me", instances[0].Name)
			return instances[0].Unavailable
		}
		time.Sleep(20 * time.Second) // less than a heartbeat: an outage is said at once
		require.Equal(t, []string{"missing"}, engine.Stats()[0].UnavailableDestinations)
		assert.Equal(t, []admin.Unavailable{{Broker: "b", Destination: "missing"}}, said())
		broker.healed.Store(true)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, engine.Stats()[0].UnavailableDestinations)
		assert.Empty(t, said())
		assert.EqualValues(t, 4, engine.Stats()[0].Published)
	})
}

// Rows that no relay delivers are reported at the start and within minutes, once while they last.
func TestUnconfigured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &lobby{backlog: []string{"b", "lost"}}
		log, _ := startEngine(t, store, 0, "")
		step := func(after time.Duration, fail error, backlog ...string) (warned []string) {
			store.set(func(l *lobby) { l.fail, l.backlog = fail, backlog })
			time.Sleep(after)
			synctest.Wait()
			for _, line := range log.take("rows of an unconfigured broker") {
				_, name, _ := strings.Cut(strings.TrimSpace(line), " database=db broker=")
				name, remedy, _ := strings.Cut(name, " remedy=")
				assert.Equal(t, `"add the broker to the configuration, or fanout messages abandon --broker `+name+`"`, remedy)
				warned = append(warned, name)
			}
			return warned
		}
		assert.Equal(t, []string{"lost"}, step(0, nil, "b", "lost"), "at the start")
		assert.Empty(t, step(unconfiguredEvery-time.Second, nil, "b", "lost", "new"))
		assert.Equal(t, []string{"new"}, step(time.Second, nil, "b", "lost", "new"), "once")
		assert.Empty(t, step(unconfiguredEvery, errors.New("down"), "b", "lost", "new"), "not known is not gone")
		assert.Empty(t, step(2*unconfiguredEvery, nil, "new"))
		assert.Equal(t, []string{"lost"}, step(unconfiguredEvery, nil, "lost", "new"), "again, since it was gone")
	})
}

// What slows down a database is reported at the start and within minutes, once while it lasts, and
// when it is over.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &lobby{found: []string{"first"}}
		log, _ := startEngine(t, store, 0, "")
		step := func(after time.Duration, fail error, found ...string) (said []string) {
			store.set(func(l *lobby) { l.fail, l.found = fail, found })
			time.Sleep(after)
			synctest.Wait()
			for _, line := range log.take(`msg="database problem`, " database=db topic=vacuum problem=") {
				_, line, _ = strings.Cut(strings.TrimSpace(line), `msg="database problem`)
				over, problem, _ := strings.Cut(line, `" database=db topic=vacuum problem=`)
				said = append(said, problem+over)
			}
			return said
		}
		assert.Equal(t, []string{"first"}, step(0, nil, "first"), "at the start")
		assert.Empty(t, step(watchEvery-time.Second, nil, "first", "second"))
		assert.Equal(t, []string{"second"}, step(time.Second, nil, "first", "second"))
		assert.Empty(t, step(2*watchEvery, errors.New("down"), "first", "second"), "once; and not known is not over")
		assert.Equal(t, []string{"first over"}, step(watchEvery, nil, "second"))
		assert.Equal(t, []string{"first"}, step(watchEvery, nil, "first", "second"), "again, since it was over")
	})
}

// pages counts the pages that are read of stranded rows.
type pages struct {
	driver.Delivery

	read atomic.Int64
}

func (s *pages) Stranded(ctx context.Context, broker string, after admin.Position, limit int) (admin.List, error) {
	s.read.Add(1)
	return s.Delivery.Stranded(ctx, broker, after, limit)
}

// Rows whose key block was removed by hand are named with the remedy when a relay starts, once an hour
// while they last, and are over when they were requeued. What is looked at is bounded.
func TestStrandedRowsAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, &fake{}, outbox.Policy{})
		const rows = sentinelPages*sentinelRows + 100 // of which all are deferred, and only the last is behind nothing
		r.exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, deferred)
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			SELECT printf('00000000-0000-0000-0000-%012d', i), 'b', 's', 'Ordering.OrderPlaced.v1', CASE WHEN i = ? THEN 'order-42' ELSE 'waits' END, x'', 1 FROM n`, rows, rows)
		r.exec(`INSERT INTO outbox_messages_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason, since)
			SELECT 'b', shard, 'waits', 0, '00000000-0000-0000-0000-000000000000', 9223372036854775807, 'operator', 0 FROM outbox_messages LIMIT 1`)
		store := &pages{Delivery: r.store}
		engine, _ := r.engine(EngineConfig{
			Stores:  map[string]driver.Delivery{"db": store},
			Brokers: map[string]Target{"b": {Broker: &fake{}, Policy: outbox.Policy{PollMin: 10 * time.Minute, PollMax: 10 * time.Minute}}},
		})
		lines := func(after time.Duration) []string {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			return r.log.take("stranded")
		}
		assert.Empty(t, lines(time.Minute), "the first 10,000 wait for an operator")
		assert.EqualValues(t, sentinelPages, store.read.Load(), "pages of 1,000")
		said := lines(10 * time.Minute)
		require.Len(t, said, 1)
		id := fmt.Sprintf("00000000-0000-0000-0000-%012d", rows)
		assert.Contains(t, said[0], `level=WARN msg="rows stranded" database=db remedy="fanout messages requeue --id `+id+` --broker b" broker=b rows=1 message_id=`+id+
			` type=Ordering.OrderPlaced.v1 ordering_key=order-42`)
		assert.EqualValues(t, 1, engine.Stats()[0].Stranded)
		r.exec("DELETE FROM outbox_messages WHERE ordering_key = 'waits'") // from here on a look is quick
		assert.Empty(t, lines(50*time.Minute), "it was said within the hour")
		assert.Len(t, lines(40*time.Minute), 1, "it lasts")

		n, err := r.store.Requeue(t.Context(), admin.Filter{MessageIDs: []string{id}}, 10)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		said = lines(30 * time.Minute)
		require.Len(t, said, 1)
		assert.Contains(t, said[0], `level=INFO msg="rows no longer stranded" database=db broker=b`)
		assert.Zero(t, engine.Stats()[0].Stranded)
		assert.EqualValues(t, 1, engine.Stats()[0].Published)
	})
}
