package relaytest

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

const (
	patience = 2 * time.Minute
	tick     = 10 * time.Millisecond
	someRows = 50
	someKeys = 5
)

// policy has short pauses. A message has three attempts.
var policy = outbox.Policy{
	PollMin: time.Millisecond, PollMax: 20 * time.Millisecond,
	Breaker: outbox.Breaker{MinDelay: 20 * time.Millisecond, MaxDelay: 100 * time.Millisecond},
	Retry:   outbox.Retry{MaxAttempts: 3, BaseDelay: 10 * time.Millisecond, Jitter: -1},
}

// An Outage is a broker, or one of its destinations, that takes no message until it is healed.
type Outage struct {
	Target brokers.Broker
	// Stream that takes nothing. Default: "s".
	Stream string
	// Beside is a stream that works all the time. Default: none does.
	Beside string
	// Says is a part of the rows' last errors.
	Says string
	// Logged is the scope that the log calls unavailable, once, and available again. Default: the log is
	// not checked, as where no server says that it is out.
	Logged brokers.Scope
	// Lasts, if set, holds the outage until it is true.
	Lasts func() bool
	Heal  func()
}

// Outlives runs a relay through an outage: no message loses an attempt, the other stream goes on, and after
// the outage everything is delivered. The rows and the log say what is wrong.
func Outlives(t *testing.T, o Outage) {
	t.Helper()
	o.Stream = cmp.Or(o.Stream, "s")
	log := &lines{}
	r := Start(t, o.Target, policy, slog.New(slog.NewTextHandler(log, nil)))
	soon := func(what string, holds func() bool) {
		t.Helper()
		require.Eventually(t, holds, patience, tick, what)
	}
	beside := 0
	works := func() {
		t.Helper()
		if o.Beside != "" {
			r.insertMany(o.Beside)
			beside += someRows
			soon("the other stream works", func() bool { return r.Count("status = 'published'") == beside })
		}
	}
	r.insertMany(o.Stream)
	works()
	soon("the rows say why", func() bool { return r.Count("last_error LIKE '%"+o.Says+"%'") > 0 })
	if o.Logged != "" {
		soon("the log says why", func() bool { return log.count("level=WARN", string(o.Logged)+" unavailable", o.Says) == 1 })
	}
	if o.Lasts != nil {
		soon("the outage has lasted", o.Lasts)
	}
	works()
	assert.Equal(t, someRows, r.Count("stream = ? AND finished_at IS NULL AND attempts = 0", o.Stream))

	o.Heal()
	soon("everything is delivered", func() bool { return r.Count("status = 'published' AND attempts <= 1") == beside+someRows })
	if o.Logged != "" {
		soon("the log says that it is over", func() bool { return log.count("level=INFO", string(o.Logged)+" available again") == 1 })
		assert.Equal(t, 1, log.count("level=WARN"), "once for the whole outage")
	}
}

// FindsPoison runs a relay over a broker that refuses a message each time, as refuse has it do. It alone loses attempts, and is
// abandoned; the messages behind it on its key are delivered.
func FindsPoison(t *testing.T, target brokers.Broker, refuse func(id string)) {
	t.Helper()
	poison := uuid.New()
	refuse(poison.String())
	r := Start(t, target, policy, nil)
	rows := make([]outbox.Row, someRows)
	for i := range rows {
		rows[i].OrderingKey = fmt.Sprint("k", i%someKeys)
	}
	rows[1].MessageID = poison
	r.Insert(rows...)
	require.Eventually(t, func() bool { return r.Count("finished_at IS NULL") == 0 }, patience, tick)
	assert.Equal(t, someRows-1, r.Count("status = 'published' AND attempts <= 1"))
	assert.Equal(t, 1, r.Count("status = 'abandoned' AND attempts = 3 AND message_id = ?", poison.String()))
}

// insertMany writes rows of some keys.
func (r *Relay) insertMany(stream string) {
	r.t.Helper()
	rows := make([]outbox.Row, someRows)
	for i := range rows {
		rows[i] = outbox.Row{Stream: stream, OrderingKey: fmt.Sprint(stream, i%someKeys)}
	}
	r.Insert(rows...)
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// count counts the lines that have all parts.
func (l *lines) count(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}
