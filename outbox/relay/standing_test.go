package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with are the lines that contain all of these.
func (l *lines) with(all ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, part := range all {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}

// refusing is a store whose claims, polls and deferrals fail as long as there is a cause.
type refusing struct {
	driver.Store

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

func (s *refusing) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	switch err := s.next(); {
	case errors.Is(err, errBusy) && claim != nil:
		return driver.Exchanged{Batch: driver.Batch{Busy: true}}, nil
	case errors.Is(err, errNothing) && claim != nil:
		return driver.Exchanged{}, nil
	case err != nil && !errors.Is(err, errBusy) && !errors.Is(err, errNothing):
		return driver.Exchanged{}, err
	}
	exchanged, err := s.Store.Exchange(ctx, completion, claim)
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

// standing is a processor with a database that refuses claims, and its log.
func standing(t *testing.T, path string, broker brokers.Broker) (*rig, *refusing, *lines) {
	t.Helper()
	policy := outbox.Policy{PollMin: 10 * time.Second, PollMax: time.Minute, Breaker: outbox.Breaker{TripAfter: 2, MinDelay: time.Minute, MaxDelay: 4 * time.Minute}}
	r, log := newRig(t, path, broker, policy), &lines{}
	t.Cleanup(func() { _ = r.db.Close() })
	store := &refusing{Store: r.store}
	var err error
	r.proc, err = relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: store, Target: broker, Policy: policy, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	return r, store, log
}

var (
	errBusy          = errors.New("another relay claims from the shard") // for refusing: no error
	errNothing       = errors.New("the shard holds nothing")             // the same
	errEndedByServer = fmt.Errorf("terminating connection: %w", io.ErrUnexpectedEOF)
	errReadOnly      = failure.Advise(errors.New("cannot execute UPDATE in a read-only transaction"), "the relay needs the primary")
)

// A database that becomes read-only ends the connections first. The cause that stands afterwards is
// reported, with its remedy, once; the tries become no more often than polls.
func TestProcessorReportsTheCauseThatStands(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, store, log := standing(t, path, memory.New())
		store.refuse(errEndedByServer)
		r.insert("k", "waits")
		r.start()
		r.until(time.Hour, func() bool { return len(log.with("database call failed", "claim rows")) == 1 })
		store.refuse(errReadOnly)
		r.until(time.Hour, func() bool { return len(log.with("database call failed", "the relay needs the primary")) == 1 })
		began := store.tried()
		time.Sleep(time.Hour)
		// After a poll each shard with rows is claimed from; polls are up to a fifth early.
		assert.LessOrEqual(t, store.tried()-began, 60*5/4+1, "it backs off")
		assert.Len(t, log.with("database call failed"), 2, "an outage does not fill the log")
		assert.Equal(t, "pending 0", r.status("waits"))
		store.refuse()
		r.until(time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		assert.Len(t, log.with("database answers again"), 1)
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
				r, store, log := standing(t, path, memory.New())
				store.refuse(c.cause)
				r.insert("k", "waits")
				r.start()
				r.until(time.Hour, func() bool { return len(log.with("database call failed", "claim rows")) == 1 })
				time.Sleep(time.Hour)
				assert.Empty(t, log.with("database answers again"), "a row waits")
				r.query("UPDATE outbox_messages SET status = 'published', published_at = created_at, finished_at = created_at RETURNING status")
				time.Sleep(time.Hour)
				r.stop()
				assert.Len(t, log.with("database answers again", "claim rows"), c.ends)
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
				r, store, log := standing(t, path, memory.New())
				store.refuse(errReadOnly, answer)
				r.insert("k", "waits")
				r.start()
				r.until(time.Hour, func() bool { return store.tried() > 20 })
				assert.Len(t, log.with("database call failed", "claim rows"), 1)
				assert.Empty(t, log.with("database answers again"))
				store.refuse()
				r.until(time.Hour, func() bool { return r.open() == "0" })
				r.stop()
				assert.Len(t, log.with("database answers again"), 1)
			})
		})
	}
}

// Two causes that alternate are reported, and then seldom.
func TestProcessorReportsAlternatingCausesSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, store, log := standing(t, path, memory.New())
		store.refuse(errEndedByServer, errReadOnly)
		r.insert("k", "waits")
		r.start()
		time.Sleep(12 * time.Hour)
		r.stop()
		assert.GreaterOrEqual(t, store.tried(), 12*60)
		n := len(log.with("database call failed"))
		assert.GreaterOrEqual(t, n, 2)
		assert.LessOrEqual(t, n, 2+6+12, "after 1, 2, 4, 8, 16 and 32 minutes, and then each hour")
	})
}

// Claims and completions of which every second one is refused, as where a role may have fewer connections
// than the relay would use, are delivered, and do not fill the log.
func TestProcessorReportsCallsThatFailByTurnsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, store, log := standing(t, path, memory.New())
		store.refuse(errors.New("too many connections for role"), nil)
		r.start()
		for i := range 100 {
			r.insert("k", fmt.Sprint("waits ", i))
			time.Sleep(time.Second)
		}
		r.until(time.Hour, func() bool { return r.open() == "0" })
		store.refuse()
		time.Sleep(10 * time.Minute)
		r.insert("k", "later")
		r.until(time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		assert.GreaterOrEqual(t, store.tried(), 0)
		for _, what := range []string{"claim rows", "completion failed"} {
			assert.LessOrEqual(t, len(log.with("level=ERROR", what)), 2, "%s", what)
		}
		assert.Len(t, log.with("database answers again", "claim rows"), 2)
	})
}

// While a broker, or a destination, is unavailable, the cause that replaced the first one is
// reported as well.
func TestProcessorReportsTheOutageThatStands(t *testing.T) {
	t.Parallel()
	for _, scope := range []brokers.Scope{brokers.ScopeBroker, brokers.ScopeDestination} {
		t.Run(string(scope), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				var (
					mu    sync.Mutex
					cause error
				)
				set := func(err error) {
					mu.Lock()
					defer mu.Unlock()
					cause = err
				}
				broker := &fake{publish: func(context.Context, brokers.Message) error {
					mu.Lock()
					defer mu.Unlock()
					if cause == nil {
						return nil
					}
					return brokers.Unavailable(scope, cause)
				}}
				r, _, log := standing(t, path, broker)
				said := func(cause string) int { return len(log.with(string(scope)+" unavailable\"", cause)) }
				set(fmt.Errorf("read tcp: %w", io.EOF))
				r.insert("", "waits")
				r.start()
				r.until(time.Hour, func() bool { return said("EOF") == 1 })
				set(failure.Advise(errors.New("WRONGPASS"), "check user and password"))
				r.until(time.Hour, func() bool { return said("check user and password") == 1 })
				time.Sleep(4 * time.Hour)
				assert.Len(t, log.with("level=WARN", "unavailable"), 2, "each once")
				set(nil)
				r.until(time.Hour, func() bool { return r.open() == "0" })
				r.stop()
				assert.Len(t, log.with(string(scope)+" available again"), 1)
			})
		})
	}
}
