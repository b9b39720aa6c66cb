package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/uow"
)

// OrderNoted is ordered by customer, not by the order that raised it.
type OrderNoted struct {
	Customer string
	N        int
}

// A pipeline is a producer with the plugin, its relay, and the Redis between them and the
// consumers.
type pipeline struct {
	db     *gorm.DB
	client *redis.Client
	// context is the producer's: the prefix of its streams.
	context string
}

// newPipeline runs a relay until the test ends.
func newPipeline(at *place, backfill string, register func(*envelope.Catalog)) *pipeline {
	t := at.T
	t.Helper()
	redisURL := testenv.Redis(t)
	p := &pipeline{context: contextName(testenv.RedisPrefix(t))}
	cfg, err := config.Parse([]byte(at.bare()+`
outbox: {poll: {min: 10ms, max: 200ms}}
brokers:
  default: {type: redis, url: "`+redisURL+`"`+backfill+`}
`), "fanout.yaml")
	require.NoError(t, err)
	cleanStreams(t, redisURL, p.context, p.context+"::order", p.context+":backfill", p.context+"::order:backfill")
	events := envelope.NewCatalog(p.context)
	register(events)
	p.db, err = gorm.Open(at.dial(), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	sqlDB, err := p.db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = sqlDB.Close() })
	require.NoError(t, p.db.AutoMigrate(&Order{}))
	require.NoError(t, p.db.Use(gormplugin.New(events, cfg.Routing())))
	at.migrate()

	relay, err := fanout.Open(t.Context(), cfg, fanout.WithDB("default", p.db), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	background(t, relay.Run)
	options, err := redis.ParseURL(redisURL)
	require.NoError(t, err)
	p.client = redis.NewClient(options)
	t.Cleanup(func() { _ = p.client.Close() })
	return p
}

// background runs f until the test ends.
func background(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})
}

// consume runs a consumer of streams until the test ends.
func (p *pipeline) consume(t *testing.T, handler inbox.HandlerFunc, streams ...string) {
	t.Helper()
	c, err := redisconsumer.NewConsumer(p.client, "sales", streams, handler, redisconsumer.Config{
		ConsumerConfig: inbox.ConsumerConfig{Workers: 8, Retry: inbox.Retry{BaseDelay: time.Hour, MaxDelay: time.Hour}, Log: slog.New(slog.DiscardHandler)},
		Block:          50 * time.Millisecond,
	})
	require.NoError(t, err)
	background(t, c.Run)
}

// published waits until the relay has sent n messages.
func (p *pipeline) published(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() bool {
		var sent int64
		require.NoError(t, p.db.Table("outbox_messages").Where("status = 'published'").Count(&sent).Error)
		return sent == int64(n)
	})
}

// Events that share a key of their own, raised by different aggregates, are handled in the order in
// which they were committed.
func TestConsumerKeepsTheOrderOfCustomKeys(t *testing.T) {
	t.Parallel()
	onServers(t, testConsumerKeepsTheOrderOfCustomKeys)
}

func testConsumerKeepsTheOrderOfCustomKeys(t *testing.T, at *place) {
	t.Helper()
	const n = 40
	p := newPipeline(at, "", func(events *envelope.Catalog) {
		envelope.Register[OrderNoted](events, envelope.Key(func(e OrderNoted) string { return e.Customer }))
	})
	for i := range n {
		order := &Order{ID: fmt.Sprint(i), Customer: "ada"}
		order.Raise(OrderNoted{fmt.Sprint("customer-", i%2), i})
		require.NoError(t, p.db.Create(order).Error)
	}
	p.published(t, n)

	var mu sync.Mutex
	var handled int
	order := map[string][]int{}
	p.consume(t, func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		e, err := envelope.DataAs[OrderNoted](m.Envelope.Data)
		if err != nil {
			return "", err
		}
		if e.N%5 == 0 { // the later ones would overtake it if they could
			<-time.After(50 * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, e.Customer, m.OrderingKey)
		order[e.Customer] = append(order[e.Customer], e.N)
		handled++
		return inbox.Handled, nil
	}, p.context+"::order")
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return handled == n
	})
	assert.Len(t, order, 2)
	for customer, numbers := range order {
		assert.IsIncreasing(t, numbers, customer)
	}
}

// Events without a key have no order, so one that fails blocks none of them.
func TestConsumerDoesNotBlockEventsWithoutAKey(t *testing.T) {
	t.Parallel()
	onServers(t, testConsumerDoesNotBlockEventsWithoutAKey)
}

func testConsumerDoesNotBlockEventsWithoutAKey(t *testing.T, at *place) {
	t.Helper()
	const n = 20
	p := newPipeline(at, "", func(events *envelope.Catalog) { envelope.Register[StockReserved](events) })
	for i := range n {
		require.NoError(t, p.db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, StockReserved{fmt.Sprint(i)}) }))
	}
	p.published(t, n)

	var mu sync.Mutex
	handled := map[string]bool{}
	p.consume(t, func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		e, err := envelope.DataAs[StockReserved](m.Envelope.Data)
		if err != nil || e.SKU == "0" {
			return "", errors.Join(err, errors.New("the first one fails"))
		}
		mu.Lock()
		defer mu.Unlock()
		assert.Empty(t, m.OrderingKey)
		handled[e.SKU] = true
		return inbox.Handled, nil
	}, p.context)
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled) == n-1
	})
}

// An event of low priority comes to the documented consumer of its stream, after what waits there,
// although its broker puts it into a stream of its own.
func TestConsumerGetsTheBackfill(t *testing.T) {
	t.Parallel()
	onServers(t, testConsumerGetsTheBackfill)
}

func testConsumerGetsTheBackfill(t *testing.T, at *place) {
	t.Helper()
	const n = 30
	p := newPipeline(at, ", backfill: {below: 0}", func(events *envelope.Catalog) {
		envelope.Register[StockReserved](events)
		envelope.Register[OrderNoted](events, envelope.Priority(envelope.PriorityLow))
	})
	for i := range n {
		require.NoError(t, p.db.Transaction(func(tx *gorm.DB) error {
			return errors.Join(uow.Publish(tx, OrderNoted{"ada", i}), uow.Publish(tx, StockReserved{fmt.Sprint(i)}))
		}))
	}
	p.published(t, 2*n)

	var mu sync.Mutex
	var types []string
	p.consume(t, func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		types = append(types, m.Type)
		return inbox.Handled, nil
	}, p.context)
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(types) == 2*n
	})
	for i, wireType := range types {
		assert.Equal(t, i >= n, strings.Contains(wireType, "OrderNoted"), "number %d is %s", i, wireType)
	}
}
