package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/apipb"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/protobuf"
)

// Events that are Protobuf messages go from one service to another over Redis, in each form on a stream of its own: each is handled
// once, by one that fails at first, and a damaged one becomes a dead letter and keeps no other from being handled.
func TestProtobufOverRedis(t *testing.T) {
	t.Parallel()
	url, prefix := testenv.Redis(t), testenv.RedisPrefix(t)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })

	forms := map[string]string{"native": "", "events": ", format: cloudevents", "json": ", encoding: json", "events-json": ", format: cloudevents, encoding: json"}
	names, sections, streams := "", "", []string{}
	for name, settings := range forms {
		names += name + ", "
		sections += fmt.Sprintf("  %s: {type: redis, url: %q, destination: %q%s}\n", name, url, prefix+name, settings)
		streams = append(streams, prefix+name)
	}
	dsn := filepath.Join(t.TempDir(), "orders.db")
	cfg, err := config.Parse(fmt.Appendf(nil, "databases: {default: {driver: sqlite, dsn: %q}}\noutbox: {external_brokers: [%s]}\nbrokers:\n  default: {type: memory}\n%s",
		dsn, names, sections), "fanout.yaml")
	require.NoError(t, err)
	migrate(t, cfg, dsn)
	open := func(path string) *gorm.DB {
		db, err := gorm.Open(sqlite.Open(path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"), &gorm.Config{Logger: logger.Discard})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, pool.Close()) })
		return db
	}
	orders := open(dsn)
	events := envelope.NewCatalog("ordering")
	protobuf.Register[*apipb.Mixin](events, envelope.Published(), envelope.Name("Placed"))
	require.NoError(t, orders.AutoMigrate(&Truck{}))
	require.NoError(t, orders.Use(gormplugin.New(events, cfg.Routing())))
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithBroker("default", memory.New()), fanout.WithDB("default", orders), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)

	billing := open(filepath.Join(t.TempDir(), "billing.db"))
	_, err = inbox.Migrate(t.Context(), billing)
	require.NoError(t, err)
	require.NoError(t, billing.Exec("CREATE TABLE got (source TEXT, key TEXT, name TEXT, root TEXT, sequence TEXT)").Error)
	handlers := inbox.NewHandlers(billing, inbox.WithLogger(slog.New(slog.DiscardHandler)))
	failed := make(chan struct{}, 1)
	protobuf.On(handlers, "Ordering.Placed.v1", func(tx *gorm.DB, event *apipb.Mixin, m *inbox.Message) error {
		select {
		case failed <- struct{}{}: // the first of all
			return assert.AnError
		default:
		}
		return tx.Exec("INSERT INTO got VALUES (?, ?, ?, ?, ?)", m.Source, m.OrderingKey, event.GetName(), event.GetRoot(), m.Envelope.Metadata.Domain.SequenceID).Error
	})
	consumer, err := redisconsumer.NewConsumer(client, "billing", streams, handlers, redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- relay.Run(ctx) }()
	go func() { done <- consumer.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
		assert.NoError(t, <-done)
	})

	require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: prefix + "native", Values: []any{
		"data", "\x0a\x7fcut", "id", "0199c0de-0000-7000-8000-000000000001", "type", "Ordering.Placed.v1", "content-type", "application/protobuf", "ordering_key", "ordering::truck-1",
	}}).Err())
	want := map[string]bool{}
	for n := range 5 {
		truck := &Truck{ID: fmt.Sprint(n), Version: int64(n)}
		message := &apipb.Mixin{Name: fmt.Sprint("name ", n, " ß\x00"), Root: fmt.Sprint(n)}
		if n == 0 {
			message = new(apipb.Mixin) // no bytes
		}
		truck.Raise(message)
		want[fmt.Sprintf("ordering::truck-%d %q %q", n, message.GetName(), message.GetRoot())] = true
		kept := proto.Clone(message)
		require.NoError(t, orders.Create(truck).Error)
		assert.True(t, proto.Equal(kept, message), "a message that is raised stays as it is")
	}
	var rows []struct{ Source, Key, Name, Root, Sequence string }
	eventually(t, func() bool {
		require.NoError(t, billing.Table("got").Find(&rows).Error)
		return len(rows) == len(forms)*len(want)
	})
	got := map[string]map[string]bool{}
	for _, row := range rows {
		if got[row.Source] == nil {
			got[row.Source] = map[string]bool{}
		}
		got[row.Source][fmt.Sprintf("%s %q %q", row.Key, row.Name, row.Root)] = true
	}
	for name := range forms {
		assert.Equal(t, want, got[prefix+name], name)
	}
	eventually(t, func() bool {
		letters, err := inbox.DeadLetters(t.Context(), billing, inbox.DeadLetterFilter{Consumer: "billing"})
		require.NoError(t, err)
		return len(letters) == 1 && string(letters[0].Payload) == "\x0a\x7fcut"
	})
}
