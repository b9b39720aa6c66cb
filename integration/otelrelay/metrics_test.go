package otelrelay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/integration/internal/metrictest"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/telemetry/otelrelay"
)

// sameClock does not compare clocks: SQLite's own is not in the bubble.
type sameClock struct{ driver.Delivery }

func (sameClock) Diagnose(context.Context) (admin.Diagnosis, error) { return admin.Diagnosis{}, nil }

// browser counts how often a store is asked how brokers stand.
type browser struct {
	admin.Administration

	asked atomic.Int64
	out   atomic.Bool
}

func (b *browser) Overview(ctx context.Context, limit int) ([]admin.BrokerOverview, error) {
	b.asked.Add(1)
	if b.out.Load() || limit < 10_000 {
		return nil, errors.New("no answer")
	}
	return b.Administration.Overview(ctx, limit)
}

// series are the figures that a reader collects: of a counter or gauge its value, of a histogram
// its count.
type series map[string]float64

func collect(t *testing.T, reader *sdk.ManualReader) (series, map[string]metricdata.Metrics) {
	t.Helper()
	return metrictest.Collect(t, reader, otelrelay.Scope, func(name string, set attribute.Set) string { return labels(t, name, set) })
}

// labels checks the attributes: which there are must not depend on messages.
func labels(t *testing.T, name string, set attribute.Set) string {
	t.Helper()
	text := name
	for _, a := range set.ToSlice() {
		switch a.Key {
		case "database", "broker":
			text += " " + a.Value.String()
		case "state":
			assert.Equal(t, "fanout.outbox.tenants", name)
			text += " " + a.Value.String()
		case "tenant":
			assert.Equal(t, "fanout.outbox.database.up", name)
			text += " of a tenant"
		case "messaging.system", "messaging.operation.name":
			assert.Contains(t, []string{"fanout", "publish"}, a.Value.String())
		default:
			t.Errorf("%s has the attribute %s", name, a.Key)
		}
	}
	return text
}

func TestEveryInstrument(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)")
		require.NoError(t, err)
		defer db.Close()
		store, err := sqlite.New(db, "")
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		insert := func(payload string) {
			_, err := db.ExecContext(t.Context(), "INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, created_at) VALUES (?, 'events', 's', 'T', ?, ?)",
				uuid.NewString(), []byte(payload), time.Now().Add(-20*time.Second).UnixMicro())
			require.NoError(t, err)
		}
		broker := memory.New()
		var down, slow atomic.Bool
		broker.Fail = func(m brokers.Message) error {
			switch string(m.Payload) {
			case "hopeless":
				return brokers.Permanent(errors.New("no"))
			case "later":
				return brokers.Retryable(errors.New("not now"))
			case "stolen":
				_, err := db.ExecContext(t.Context(), "UPDATE outbox_messages SET lock_token = randomblob(16) WHERE CAST(payload AS TEXT) = 'stolen'")
				return err
			case "last":
				slow.Store(true)
				time.Sleep(time.Second)
			}
			if down.Load() {
				return brokers.Unavailable(brokers.ScopeBroker, errors.New("down"))
			}
			return nil
		}

		reader := sdk.NewManualReader()
		m, err := otelrelay.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)))
		require.NoError(t, err)
		engine, err := relay.NewEngine(relay.EngineConfig{
			Stores: map[string]driver.Delivery{"orders": sameClock{store}}, Log: slog.New(slog.DiscardHandler), Observer: m,
			Brokers: map[string]relay.Target{"events": {Broker: broker, Policy: outbox.Policy{Retry: outbox.Retry{BaseDelay: 24 * time.Hour}}}},
		})
		require.NoError(t, err)
		answers := &browser{Administration: store}
		stop, err := m.Watch(otelrelay.Sources{Stats: engine.Stats, Databases: map[string]admin.Administration{"orders": answers}, Brokers: []string{"events", "idle"}})
		require.NoError(t, err)

		for _, payload := range []string{"good", "better", "hopeless", "later", "stolen"} {
			insert(payload)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- engine.Run(ctx) }()
		until(t, func() bool { s := engine.Stats()[0]; return s.LeaseLost == 1 && s.Leases == 0 && s.Retried == 1 })
		m.Purged(ctx, "orders", 7)

		values, all := collect(t, reader)
		want := series{
			"messaging.client.sent.messages events orders":         5,
			"fanout.outbox.messages.claimed events orders":         5,
			"fanout.outbox.messages.published events orders":       3,
			"fanout.outbox.messages.failed events orders":          2,
			"fanout.outbox.messages.retried events orders":         1,
			"fanout.outbox.messages.abandoned events orders":       1,
			"fanout.outbox.messages.released events orders":        0,
			"fanout.outbox.leases.lost events orders":              1,
			"fanout.outbox.delivery.duration events orders":        3,
			"fanout.outbox.message.attempts events orders":         4,
			"fanout.outbox.message.attempts events orders sum":     4,
			"fanout.outbox.claim.size events orders sum":           5,
			"fanout.outbox.publish.size events orders sum":         5,
			"fanout.outbox.rows.pending events orders":             0,
			"fanout.outbox.rows.processing events orders":          1, // the stolen one
			"fanout.outbox.rows.failed events orders":              1,
			"fanout.outbox.rows.abandoned events orders":           1,
			"fanout.outbox.rows.unacknowledged events orders":      1,
			"fanout.outbox.rows.scheduled events orders":           0,
			"fanout.outbox.rows.held events orders":                0,
			"fanout.outbox.rows.stranded events orders":            0,
			"fanout.outbox.keys.blocked events orders":             0,
			"fanout.outbox.rows.pending idle orders":               0, // it is configured, and has no rows
			"fanout.outbox.lag idle orders":                        0,
			"fanout.outbox.lag events orders":                      0,
			"fanout.outbox.leases.active events orders":            0,
			"fanout.outbox.breaker.state events orders":            0,
			"fanout.outbox.destinations.unavailable events orders": 0,
			"fanout.outbox.broker.paused events orders":            0,
		}
		for key, n := range want {
			got, ok := values[key]
			assert.True(t, ok, "%s is missing", key)
			assert.InDelta(t, n, got, 0, key)
		}
		assert.InDelta(t, 7, values["fanout.outbox.messages.purged orders"], 0)
		assert.InDelta(t, 1, values["fanout.outbox.database.up orders"], 0)
		assert.NotZero(t, values["fanout.outbox.claim.duration events orders"])
		assert.NotZero(t, values["messaging.client.operation.duration events orders"])
		assert.GreaterOrEqual(t, values["fanout.outbox.delivery.duration events orders sum"], 60.0, "three of twenty seconds")
		assert.Less(t, values["fanout.outbox.delivery.duration events orders sum"], 90.0)
		assert.GreaterOrEqual(t, values["fanout.outbox.oldest.age events orders"], 19.0)
		assert.NotContains(t, all, "fanout.outbox.listener.up", "it does not listen")
		documented(t, all)

		// The database is asked once in ten seconds, whoever collects, and is missing when it does
		// not answer.
		_, _ = collect(t, reader)
		assert.EqualValues(t, 1, answers.asked.Load())
		answers.out.Store(true)
		time.Sleep(10 * time.Second)
		values, _ = collect(t, reader)
		_, _ = collect(t, reader)
		assert.EqualValues(t, 2, answers.asked.Load())
		assert.InDelta(t, 0, values["fanout.outbox.database.up orders"], 0)
		assert.NotContains(t, values, "fanout.outbox.rows.pending events orders")

		// An outage, and what is claimed.
		down.Store(true)
		insert("waits")
		until(t, func() bool { return engine.Stats()[0].Breaker != relay.BreakerClosed })
		values, _ = collect(t, reader)
		assert.NotZero(t, values["fanout.outbox.breaker.state events orders"])
		until(t, func() bool { v, _ := collect(t, reader); return v["fanout.outbox.messages.released events orders"] > 0 })
		down.Store(false)
		insert("last")
		until(t, slow.Load)
		values, _ = collect(t, reader)
		assert.InDelta(t, 1, values["fanout.outbox.leases.active events orders"], 0)
		cancel()
		require.NoError(t, <-ended)

		require.NoError(t, stop())
		_, all = collect(t, reader)
		assert.NotContains(t, all, "fanout.outbox.leases.active")
	})
}

func until(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Hour); !condition(); {
		if time.Now().After(deadline) {
			t.Fatal("not within an hour")
		}
		time.Sleep(50 * time.Millisecond) // of the bubble's time
	}
}

// documented checks that docs/metrics.md has each instrument of relays, with its unit, and none
// that there is not.
func documented(t *testing.T, all map[string]metricdata.Metrics) {
	t.Helper()
	text := testenv.Page(t, "metrics.md")
	_, section, ok := strings.Cut(text, "\n## Instruments\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	found := map[string]string{}
	for _, match := range regexp.MustCompile("(?m)^\\| `((?:fanout|messaging)\\.[a-z.]+)` \\| (\\S+)").FindAllStringSubmatch(section, -1) {
		found[match[1]] = match[2]
	}
	delete(found, "fanout.outbox.tenants")     // needs tenants: see TestGaugesOfTenants
	delete(found, "fanout.outbox.listener.up") // needs PostgreSQL: see TestGaugesOfAListener
	want := map[string]string{}
	for name, m := range all {
		want[name] = m.Unit
	}
	assert.Equal(t, want, found)
}

func TestGaugesOfAListener(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	m, err := otelrelay.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)))
	require.NoError(t, err)
	stats := []relay.Stats{
		{Database: "d", Broker: "connected", Listener: relay.ListenerConnected, Breaker: relay.BreakerHalfOpen, Paused: true, UnavailableDestinations: []string{"a", "b"}, Leases: 4},
		{Database: "d", Broker: "disconnected", Listener: relay.ListenerDisconnected, Breaker: relay.BreakerOpen},
		{Database: "d", Broker: "polls", Listener: relay.ListenerOff, Breaker: relay.BreakerClosed},
	}
	_, err = m.Watch(otelrelay.Sources{Stats: func() []relay.Stats { return stats }})
	require.NoError(t, err)
	values, _ := collect(t, reader)
	assert.Equal(t, series{
		"fanout.outbox.listener.up connected d": 1, "fanout.outbox.listener.up disconnected d": 0,
		"fanout.outbox.rows.stranded connected d": 0, "fanout.outbox.rows.stranded disconnected d": 0, "fanout.outbox.rows.stranded polls d": 0,
		"fanout.outbox.breaker.state connected d": 1, "fanout.outbox.breaker.state disconnected d": 2, "fanout.outbox.breaker.state polls d": 0,
		"fanout.outbox.broker.paused connected d": 1, "fanout.outbox.broker.paused disconnected d": 0, "fanout.outbox.broker.paused polls d": 0,
		"fanout.outbox.destinations.unavailable connected d": 2, "fanout.outbox.destinations.unavailable disconnected d": 0, "fanout.outbox.destinations.unavailable polls d": 0,
		"fanout.outbox.leases.active connected d": 4, "fanout.outbox.leases.active disconnected d": 0, "fanout.outbox.leases.active polls d": 0,
	}, values)
}

// crowd has rows of more brokers than anybody configured.
type crowd struct {
	admin.Administration

	brokers []admin.BrokerOverview
}

func (c *crowd) Overview(context.Context, int) ([]admin.BrokerOverview, error) {
	return c.brokers, nil
}

// Whoever can write rows names brokers as he likes: those of the configuration keep their figures,
// and the series stay few.
func TestForeignBrokersDoNotPushOutOurs(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := &crowd{}
	waiting := func(name string, n int64) {
		c.brokers = append(c.brokers, admin.BrokerOverview{Broker: name, Lag: time.Duration(n) * time.Second, Counts: map[outbox.Status]admin.Count{outbox.StatusPending: {N: n}}})
	}
	waiting("(others)", 1000)
	for i := range 130 {
		waiting(fmt.Sprintf("a%03d", i), 1)
	}
	waiting("default", 7)
	waiting("partner", 8)
	reader := sdk.NewManualReader()
	m, err := otelrelay.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)))
	require.NoError(t, err)
	_, err = m.Watch(otelrelay.Sources{
		Databases: map[string]admin.Administration{"d": c}, Brokers: []string{"default", "partner"}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	values, _ := collect(t, reader)
	pending := series{}
	for name, value := range values {
		if broker, ok := strings.CutPrefix(name, "fanout.outbox.rows.pending "); ok {
			pending[strings.TrimSuffix(broker, " d")] = value
		}
	}
	assert.InDelta(t, 7, pending["default"], 0)
	assert.InDelta(t, 8, pending["partner"], 0)
	assert.InDelta(t, 1, pending["a019"], 0)
	assert.InDelta(t, 110+1000, pending[otelrelay.OtherBrokers], 0)
	assert.Len(t, pending, 2+20+1)
	assert.InDelta(t, 1000, values["fanout.outbox.lag (others) d"], 0)
	assert.Equal(t, 1, strings.Count(log.String(), "metrics of unconfigured brokers summed up"))
}

func TestMetricsWithoutAProvider(t *testing.T) {
	t.Parallel()
	_, err := otelrelay.NewMetrics(nil)
	require.ErrorContains(t, err, "no meter provider")
	m, err := otelrelay.NewMetrics(noop.NewMeterProvider())
	require.NoError(t, err)
	stop, err := m.Watch(otelrelay.Sources{})
	require.NoError(t, err)
	require.NoError(t, stop())
}

// A message costs no allocation, with the SDK behind the instruments, too.
func TestAllocationsOfAMessage(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	m, err := otelrelay.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader())))
	require.NoError(t, err)
	observer := m.Observe("d", "b")
	measure := func(n int) float64 {
		call := &relay.Call{Messages: make([]*driver.Message, n), Outgoing: make([]brokers.Message, n), Results: make([]brokers.Result, n), Began: time.Now()}
		completion := &driver.Completion{Published: make([]driver.Delivered, n), Other: make([]driver.Outcome, n)}
		for i := range n {
			call.Messages[i] = &driver.Message{CreatedAt: time.Now()}
			completion.Other[i] = driver.Outcome{Status: outbox.StatusAbandoned, Attempts: 3}
		}
		return testenv.Allocations(100, func() {
			observer.Claimed(t.Context(), n, time.Millisecond)
			observer.Published(observer.Publishing(t.Context(), call), call)
			observer.Completing(t.Context(), completion)
			observer.LeaseLost(t.Context(), 1)
		})
	}
	few, many := measure(10), measure(500)
	t.Logf("a batch of 10: %v allocations, of 500: %v", few, many)
	require.InDelta(t, few, many, 0)
}

// Tenants are counted by state. Of one that is awake the gauges are those of other databases, with a mark
// by which an alert knows that their end is no fault.
func TestGaugesOfTenants(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	m, err := otelrelay.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)))
	require.NoError(t, err)
	awake := map[string]admin.Administration{"acme": &few{}}
	_, err = m.Watch(otelrelay.Sources{
		Databases: map[string]admin.Administration{"main": &few{}},
		More:      func() map[string]admin.Administration { return maps.Clone(awake) },
		Tenants: func() map[string]int {
			return map[string]int{"asleep": 3, "awake": len(awake), "waiting": 4, "failing": 2}
		},
	})
	require.NoError(t, err)
	values, all := collect(t, reader)
	assert.Equal(t, "{tenant}", all["fanout.outbox.tenants"].Unit)
	want := series{
		"fanout.outbox.tenants asleep": 3, "fanout.outbox.tenants awake": 1, "fanout.outbox.tenants waiting": 4, "fanout.outbox.tenants failing": 2,
		"fanout.outbox.database.up main": 1, "fanout.outbox.database.up acme of a tenant": 1, "fanout.outbox.lag b acme": 1.5,
	}
	for key, n := range want {
		got, ok := values[key]
		assert.True(t, ok, "%s is missing", key)
		assert.InDelta(t, n, got, 0, key)
	}
	delete(awake, "acme")
	values, _ = collect(t, reader)
	assert.NotContains(t, values, "fanout.outbox.database.up acme of a tenant")
	assert.NotContains(t, values, "fanout.outbox.lag b acme")
	assert.Contains(t, values, "fanout.outbox.lag b main")
}

// few says of one broker how late it is.
type few struct{ admin.Administration }

func (*few) Overview(context.Context, int) ([]admin.BrokerOverview, error) {
	return []admin.BrokerOverview{{Broker: "b", Lag: 1500 * time.Millisecond}}, nil
}
