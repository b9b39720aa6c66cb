package relay_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// taken is a store of which another relay has a shard, until it is asked whose it is often enough.
type taken struct {
	driver.Store

	mu     sync.Mutex
	free   bool
	asked  []time.Time
	answer func(asked int) (driver.Holder, error)
}

func (s *taken) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	s.mu.Lock()
	free := s.free
	s.mu.Unlock()
	if !free && claim != nil && claim.Shard == 0 {
		return driver.Exchanged{Batch: driver.Batch{Busy: true}}, nil
	}
	return s.Store.Exchange(ctx, completion, claim)
}

func (s *taken) Holder(context.Context, string, int) (driver.Holder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	holder, err := s.answer(len(s.asked))
	s.free = holder.Ended
	return holder, err
}

// A shard that others keep for seconds is worth a question whose it is, every five seconds, and a
// line once a minute; one that its database has ended, a line at once.
func TestProcessorTellsWhoHasAShard(t *testing.T) {
	const line = `level=WARN msg="shard held by another session" database=test broker=b shard=0 for=`
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		var log bytes.Buffer
		store := &taken{Store: r.store, answer: func(asked int) (driver.Holder, error) {
			switch {
			case asked <= 2:
				return driver.Holder{}, nil // others take turns
			case asked == 3:
				return driver.Holder{}, errors.New("no answer")
			default:
				return driver.Holder{Session: "process 7", Ended: asked == 9}, nil
			}
		}}
		var err error
		r.proc, err = relay.NewProcessor(relay.ProcessorConfig{
			Database: "test", Broker: "b", Store: store, Target: memory.New(), Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		began := time.Now()
		r.start()
		r.insert("k", "1")
		r.until(5*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		require.Len(t, store.asked, 9)
		for i, at := range store.asked {
			assert.InDelta(t, 5*(i+1), at.Sub(began).Seconds(), 1, "question %d", i)
		}
		lines := strings.Split(log.String(), "\n")
		told := []string{}
		for _, l := range lines {
			if _, what, ok := strings.Cut(l, line); ok {
				told = append(told, what)
			}
		}
		assert.Equal(t, []string{`20s session="process 7" ended=false`, `45s session="process 7" ended=true`}, told)
	})
}

// A shard that is free in between belongs to no session.
func TestProcessorAsksForNoHolderOfAShardThatIsFreeAtTimes(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		store := &taken{Store: r.store, answer: func(int) (driver.Holder, error) { return driver.Holder{Session: "process 7"}, nil }}
		var err error
		r.proc, err = relay.NewProcessor(relay.ProcessorConfig{Database: "test", Broker: "b", Store: store, Target: memory.New(), Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		r.start()
		for range 20 {
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
