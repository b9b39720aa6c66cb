package relay_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// pausesTold is a store that counts who asks for the pauses, and may be unable to tell.
type pausesTold struct {
	*sqlite.Store

	asked atomic.Int64
	err   error
}

func (s *pausesTold) Pauses(ctx context.Context) ([]admin.Pause, error) {
	s.asked.Add(1)
	pauses, err := s.Store.Pauses(ctx)
	return pauses, errors.Join(err, s.err)
}

// The log says who has paused a broker, why and since when. The pauses are read when that changes,
// and at no other look.
func TestProcessorSaysWhoPaused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"told":    {want: `by=ada reason="a drill" since=%s`},
		"refused": {err: errors.New("no right to read pauses"), want: `error="no right to read pauses"`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				r := newRig(t, path, &fake{publish: func(context.Context, brokers.Message) error { return nil }}, outbox.Policy{})
				t.Cleanup(func() { _ = r.db.Close() })
				store := &pausesTold{Store: r.store, err: c.err}
				var log bytes.Buffer // read when nobody writes any more
				var err error
				r.proc, err = relay.NewProcessor(relay.ProcessorConfig{
					Database: "test", Broker: "b", Store: store, Target: r.broker, Log: slog.New(slog.NewTextHandler(&log, nil)),
				})
				require.NoError(t, err)
				r.start()
				time.Sleep(time.Minute)
				assert.Zero(t, store.asked.Load(), "nothing is paused")
				pauses := []admin.Pause{{Broker: "a", By: "nobody"}, {Broker: "b", By: "ada", Reason: "a drill"}}
				for _, pause := range pauses {
					_, err := r.store.Pause(t.Context(), pause)
					require.NoError(t, err)
				}
				listed, err := r.store.Pauses(t.Context())
				require.NoError(t, err)
				time.Sleep(5 * time.Minute)
				assert.True(t, r.proc.Stats().Paused)
				assert.EqualValues(t, 1, store.asked.Load())
				_, err = r.store.Resume(t.Context(), "b")
				require.NoError(t, err)
				r.until(time.Minute, func() bool { return !r.proc.Stats().Paused })
				r.stop()
				assert.EqualValues(t, 1, store.asked.Load())
				want := strings.ReplaceAll(c.want, "%s", listed[1].Since.Format("2006-01-02T15:04:05.000Z07:00"))
				assert.Equal(t, 1, strings.Count(log.String(), "broker paused"))
				assert.Regexp(t, `msg="broker paused" database=test broker=b `+regexp.QuoteMeta(want)+`\n`, log.String())
				assert.Contains(t, log.String(), "broker resumed")
			})
		})
	}
}
