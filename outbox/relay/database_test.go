package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// refusing is a store whose claims and completions fail as long as there is a cause.
type refusing struct {
	driver.Delivery

	mu     sync.Mutex
	causes []error // each try meets the next one, then the first again; none: it works
	tries  int
	locked int    // rows that another session has locked, in each shard
	around []bool // of each claim: whether it looks for them
}

// lock says how many rows are locked from now on, and whether claims since the last call looked for them.
func (s *refusing) lock(rows int) (around []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	around = s.around
	s.locked, s.around = rows, nil
	return around
}

func (s *refusing) refuse(causes ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.causes, s.tries = causes, 0
}

func (s *refusing) next() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.causes) == 0 {
		return nil
	}
	s.tries++
	return s.causes[s.tries%len(s.causes)]
}

func (s *refusing) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}

var (
	errBusy          = errors.New("another relay claims from the shard") // for refusing: no error
	errNothing       = errors.New("the shard holds nothing")             // the same
	errEndedByServer = fmt.Errorf("terminating connection: %w", io.ErrUnexpectedEOF)
	errReadOnly      = failure.Advise(errors.New("cannot execute UPDATE in a read-only transaction"), "the relay needs the primary")
)

func (s *refusing) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	switch err := s.next(); {
	case errors.Is(err, errBusy) && claim != nil:
		return driver.Exchanged{Batch: driver.Batch{Busy: true}}, nil
	case errors.Is(err, errNothing) && claim != nil:
		return driver.Exchanged{}, nil
	case err != nil && !errors.Is(err, errBusy) && !errors.Is(err, errNothing):
		return driver.Exchanged{}, err
	}
	exchanged, err := s.Delivery.Exchange(ctx, completion, claim)
	if claim != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.around = append(s.around, claim.AroundLocked)
		if exchanged.Batch.Locked = s.locked; s.locked > 0 {
			exchanged.Batch.LockedBy, exchanged.Batch.Messages = "process 7", nil
		}
	}
	return exchanged, err
}

// refused is a processor that polls seldom, with a database that refuses claims for these causes,
// and one row.
func refusedBy(t *testing.T, path string, broker brokers.Broker, causes ...error) (*rig, *refusing) {
	t.Helper()
	store := &refusing{causes: causes}
	policy := outbox.Policy{PollMin: 10 * time.Second, PollMax: time.Minute, Breaker: outbox.Breaker{TripAfter: 2, MinDelay: time.Minute, MaxDelay: 4 * time.Minute}}
	r := newRig(t, path, broker, policy, func(c *ProcessorConfig) { store.Delivery, c.Store = c.Store, store })
	r.insert(row{key: "k", name: "waits"})
	return r, store
}

// A database that becomes read-only ends the connections first. The cause that stands afterwards is
// reported, with its remedy, once; the tries become no more often than polls.
func TestProcessorReportsTheCauseThatStands(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, store := refusedBy(t, path, &fake{}, errEndedByServer)
		r.start()
		r.until(time.Hour, func() bool { return r.log.count("database call failed", "claim rows") == 1 })
		store.refuse(errReadOnly)
		r.until(time.Hour, func() bool { return r.log.count("database call failed", "the relay needs the primary") == 1 })
		began := store.tried()
		time.Sleep(time.Hour)
		// After a poll each shard with rows is claimed from; polls are up to a fifth early.
		assert.LessOrEqual(t, store.tried()-began, 60*5/4+1, "it backs off")
		assert.Equal(t, 2, r.log.count("database call failed"), "an outage does not fill the log")
		assert.Equal(t, "pending 0", r.status("waits"))
		store.refuse()
		r.drained(time.Hour)
		assert.Equal(t, 1, r.log.count("database answers again"))
		assert.Equal(t, "published 1", r.status("waits"))
	})
}

// A claim that broke off is over when the database answers and nothing is left to claim, because
// another relay has delivered it; one that the database has refused is not.
func TestProcessorReportsTheEndOfAClaimThatNobodyNeeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		cause error
		ends  int
	}{{"broken off", errEndedByServer, 1}, {"refused", errReadOnly, 0}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				r, _ := refusedBy(t, path, &fake{}, c.cause)
				r.start()
				r.until(time.Hour, func() bool { return r.log.count("database call failed", "claim rows") == 1 })
				time.Sleep(time.Hour)
				assert.Zero(t, r.log.count("database answers again"), "a row waits")
				r.exec("UPDATE outbox_messages SET status = 'published', published_at = created_at, finished_at = created_at")
				time.Sleep(time.Hour)
				assert.Equal(t, c.ends, r.log.count("database answers again", "claim rows"))
			})
		})
	}
}

// That the database answers says nothing of claims that it refuses, where another relay has the shard, or
// it holds nothing: such a claim writes nothing.
func TestProcessorIsNotToldByAClaimOfNothing(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"busy": errBusy, "empty": errNothing} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				r, store := refusedBy(t, path, &fake{}, errReadOnly, answer)
				r.start()
				r.until(time.Hour, func() bool { return store.tried() > 20 })
				assert.Equal(t, 1, r.log.count("database call failed", "claim rows"))
				assert.Zero(t, r.log.count("database answers again"))
				store.refuse()
				r.drained(time.Hour)
				assert.Equal(t, 1, r.log.count("database answers again"))
			})
		})
	}
}

// Claims and completions of which every second one is refused, as where a role may have fewer connections
// than the relay would use, are delivered, and do not fill the log.
func TestProcessorReportsCallsThatFailByTurnsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, store := refusedBy(t, path, &fake{}, errors.New("too many connections for role"), nil)
		r.start()
		for i := range 100 {
			r.insert(row{key: "k", name: fmt.Sprint("m", i)})
			time.Sleep(time.Second)
		}
		r.drained(time.Hour)
		store.refuse()
		time.Sleep(10 * time.Minute)
		r.insert(row{key: "k", name: "later"})
		r.drained(time.Hour)
		for _, what := range []string{"claim rows", "completion failed"} {
			assert.LessOrEqual(t, r.log.count("level=ERROR", what), 2, "%s", what)
		}
		assert.Equal(t, 2, r.log.count("database answers again", "claim rows"))
	})
}

// While a broker, or a destination, is unavailable, the cause that replaced the first one is
// reported as well.
func TestProcessorReportsTheOutageThatStands(t *testing.T) {
	t.Parallel()
	for _, scope := range []brokers.Scope{brokers.ScopeBroker, brokers.ScopeDestination} {
		t.Run(string(scope), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				var cause atomic.Pointer[error]
				set := func(err error) { cause.Store(&err) }
				broker := &fake{publish: func(context.Context, brokers.Message) error {
					if err := *cause.Load(); err != nil {
						return brokers.Unavailable(scope, err)
					}
					return nil
				}}
				set(fmt.Errorf("read tcp: %w", io.EOF))
				r, _ := refusedBy(t, path, broker)
				said := func(cause string) bool { return r.log.count(string(scope)+" unavailable\"", cause) == 1 }
				r.start()
				r.until(time.Hour, func() bool { return said("EOF") })
				set(failure.Advise(errors.New("WRONGPASS"), "check user and password"))
				r.until(time.Hour, func() bool { return said("check user and password") })
				time.Sleep(time.Hour)
				assert.Equal(t, 2, r.log.count("level=WARN", "unavailable"), "each once")
				set(nil)
				r.drained(time.Hour)
				r.stop()
				assert.Equal(t, 1, r.log.count(string(scope)+" available again"))
			})
		})
	}
}

// Rows that other sessions have locked are reported when they have been for some seconds, once a minute;
// claims of their shards look for them first as long as there are any.
func TestProcessorReportsLockedRows(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, store := refusedBy(t, path, &fake{})
		store.lock(3)
		r.start()
		r.until(time.Hour, func() bool { return r.log.count("rows locked by another session") == 1 })
		assert.Equal(t, 1, r.log.count("level=WARN", "rows=3", `session="process 7"`, "shard="))
		time.Sleep(10 * time.Minute)
		assert.LessOrEqual(t, r.log.count("rows locked by another session"), 11)
		around := store.lock(0)
		require.Greater(t, len(around), 5)
		assert.False(t, around[0], "nothing is known yet")
		assert.NotContains(t, around[4:], false, "but then of each shard")
	})
}

// held is a store of which another relay has a shard, until it is asked whose it is often enough.
type held struct {
	driver.Delivery

	mu     sync.Mutex
	free   bool
	asked  []time.Time
	answer func(asked int) (driver.Holder, error)
}

func (s *held) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	s.mu.Lock()
	free := s.free
	s.mu.Unlock()
	if !free && claim != nil && claim.Shard == 0 {
		return driver.Exchanged{Batch: driver.Batch{Busy: true}}, nil
	}
	return s.Delivery.Exchange(ctx, completion, claim)
}

func (s *held) Holder(context.Context, string, int) (driver.Holder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	holder, err := s.answer(len(s.asked))
	s.free = holder.Ended
	return holder, err
}

func (s *held) over(c *ProcessorConfig) { s.Delivery, c.Store = c.Store, s }

// A shard that others keep for seconds is worth a question whose it is, every five seconds, and a
// line once a minute; one that its database has ended, a line at once.
func TestProcessorTellsWhoHasAShard(t *testing.T) {
	const line = `level=WARN msg="shard held by another session" database=test broker=b shard=0 for=`
	inBubble(t, func(t *testing.T, path string) {
		store := &held{answer: func(asked int) (driver.Holder, error) {
			switch {
			case asked <= 2:
				return driver.Holder{}, nil // others take turns
			case asked == 3:
				return driver.Holder{}, errors.New("no answer")
			default:
				return driver.Holder{Session: "process 7", Ended: asked == 9}, nil
			}
		}}
		r := newRig(t, path, &fake{}, outbox.Policy{}, store.over)
		began := time.Now()
		r.start()
		r.insert(row{key: "k", name: "1"})
		r.drained(5 * time.Minute)
		r.stop()
		require.Len(t, store.asked, 9)
		for i, at := range store.asked {
			assert.InDelta(t, 5*(i+1), at.Sub(began).Seconds(), 1, "question %d", i)
		}
		told := r.log.with(line)
		require.Len(t, told, 2)
		for i, want := range []string{`20s session="process 7" ended=false`, `45s session="process 7" ended=true`} {
			assert.True(t, strings.HasSuffix(strings.TrimSpace(told[i]), line+want), told[i])
		}
	})
}

// A shard that is free in between belongs to no session.
func TestProcessorAsksForNoHolderOfAShardThatIsFreeAtTimes(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store := &held{answer: func(int) (driver.Holder, error) { return driver.Holder{Session: "process 7"}, nil }}
		r := start(t, path, &fake{}, outbox.Policy{}, store.over)
		for range 10 {
			time.Sleep(3 * time.Second)
			store.mu.Lock()
			store.free = !store.free
			store.mu.Unlock()
			r.proc.Wake(wakeup.Unknown)
		}
		r.stop()
		assert.Empty(t, store.asked)
	})
}
