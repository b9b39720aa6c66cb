package relay

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// home is a store of which only the backlog is asked.
type home struct {
	lobby

	mu      sync.Mutex
	backlog []string
	fail    error
}

func (h *home) Backlog(ctx context.Context) ([]admin.Backlog, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		return nil, h.fail
	}
	var backlog []admin.Backlog
	for _, broker := range h.backlog {
		backlog = append(backlog, admin.Backlog{Broker: broker})
	}
	return backlog, ctx.Err()
}

func (*home) Counts(context.Context) ([]admin.BrokerCounts, error) { return nil, nil }

func (h *home) set(fail error, backlog ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail, h.backlog = fail, backlog
}

func TestUnknownBrokers(t *testing.T) {
	t.Parallel()
	h := &home{backlog: []string{"a", "b", "c"}}
	unknown, err := UnknownBrokers(t.Context(), h, []string{"b"})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "c"}, unknown)
	h.set(errors.New("down"))
	_, err = UnknownBrokers(t.Context(), h, nil)
	require.ErrorContains(t, err, "down")
}

// TestUnconfigured: rows that nobody delivers are reported at the start and within minutes, once
// while they last.
func TestUnconfigured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &home{backlog: []string{"b", "lost"}}
		out, stop := startEngine(t, h, 0, "")
		warnings := func() []string {
			synctest.Wait()
			out.mu.Lock()
			defer out.mu.Unlock()
			var names []string
			for line := range strings.Lines(out.b.String()) {
				if _, name, ok := strings.Cut(line, `rows of an unconfigured broker" database=db broker=`); ok {
					name, remedy, _ := strings.Cut(strings.TrimSpace(name), " remedy=")
					assert.Equal(t, `"add the broker to the configuration, or fanout messages abandon --broker `+name+`"`, remedy)
					names = append(names, name)
				}
			}
			out.b.Reset()
			return names
		}
		assert.Equal(t, []string{"lost"}, warnings(), "at the start")
		h.set(nil, "b", "lost", "new")
		time.Sleep(unconfiguredEvery - time.Second)
		assert.Empty(t, warnings())
		time.Sleep(time.Second)
		assert.Equal(t, []string{"new"}, warnings(), "once")
		h.set(errors.New("down"))
		time.Sleep(unconfiguredEvery)
		assert.Empty(t, warnings(), "not known is not gone")
		h.set(nil, "new")
		time.Sleep(2 * unconfiguredEvery)
		assert.Empty(t, warnings())
		h.set(nil, "lost", "new")
		time.Sleep(unconfiguredEvery)
		assert.Equal(t, []string{"lost"}, warnings(), "again, since it was gone")
		stop()
	})
}
