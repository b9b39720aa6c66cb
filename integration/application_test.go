package integration_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

type (
	OrderPlaced   struct{ OrderID, Customer string }
	StockReserved struct{ SKU string }
)

type Order struct {
	ID, Customer, Status string
	uow.Aggregate
}

// An application as in the README: plain GORM, a database and Redis, and the relay in the same
// process.
func TestApplication(t *testing.T) {
	t.Parallel()
	onServers(t, testApplication)
}

func testApplication(t *testing.T, p *place) {
	t.Helper()
	redisURL, prefix := testenv.Redis(t), testenv.RedisPrefix(t)
	cfg, err := config.Parse([]byte(p.bare()+`
outbox: {external_brokers: [partner], poll: {min: 10s, max: 10s}}   # what arrives sooner was woken by the commit
brokers:
  default: {type: redis, url: "`+redisURL+`"}
  partner: {type: memory}
`), "fanout.yaml")
	require.NoError(t, err)

	cleanStreams(t, redisURL, contextName(prefix), contextName(prefix)+"::order")
	events := envelope.NewCatalog(contextName(prefix))
	envelope.Register[OrderPlaced](events, envelope.Published())
	envelope.Register[StockReserved](events)

	db, err := gorm.Open(p.dial(), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	defer sqlDB.Close()
	require.NoError(t, db.AutoMigrate(&Order{}))
	require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))

	partner := memory.New()
	options := []fanout.Option{fanout.WithDB("default", db), fanout.WithBroker("partner", partner), fanout.WithLogger(slog.New(slog.DiscardHandler))}
	_, err = fanout.Open(t.Context(), cfg, options...)
	require.ErrorContains(t, err, "fanout migrate")
	p.migrate()

	partner = memory.New()
	options[2] = fanout.WithBroker("partner", partner)
	relay, err := fanout.Open(t.Context(), cfg, options...)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()

	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42", Customer: "ada", Status: "placed"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		if err := tx.Save(order).Error; err != nil {
			return err
		}
		return uow.Publish(tx, StockReserved{"teapot"})
	}))
	eventually(t, func() bool {
		var open int64
		require.NoError(t, db.Table("outbox_messages").Where("status <> 'published'").Count(&open).Error)
		return open == 0
	})
	stop()
	require.NoError(t, <-done)
	require.NoError(t, relay.Close(), "closing twice is fine")

	external := partner.Messages(contextName(prefix) + "::order")
	require.Len(t, external, 1)
	message, err := envelope.DecodeExternal(external[0].Payload)
	require.NoError(t, err)
	placed, err := envelope.DataAs[OrderPlaced](message.Data)
	require.NoError(t, err)
	assert.Equal(t, OrderPlaced{"42", "ada"}, placed)
	assert.EqualValues(t, 3, published(relay))
}

func published(relay *fanout.Relay) (n int64) {
	for _, s := range relay.Stats() {
		n += s.Published
	}
	return n
}

// A relay starts although the session ends that checks its schema.
func TestCheckLosesItsSession(t *testing.T) {
	t.Parallel()
	for driver, asks := range map[outbox.Dialect]string{outbox.Postgres: "pg_get_partkeydef", outbox.MySQL: "SHOW CREATE TABLE"} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, driver)
			p.migrate()
			_, address, _ := strings.Cut(p.dsn, "@")
			address = strings.TrimPrefix(address, "tcp(")
			address = address[:strings.IndexAny(address, ")/")]
			proxy := toxic.Start(t, address)
			p.dsn = strings.Replace(p.dsn, address, proxy.Addr(t), 1)
			cfg, err := config.Parse([]byte(p.yaml()+"brokers: {default: {type: memory}}\n"), "fanout.yaml")
			require.NoError(t, err)
			proxy.EndOnce(t, asks)
			relay, err := fanout.Open(t.Context(), cfg, fanout.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			require.NoError(t, relay.Close())
		})
	}
}

func TestOpenReportsEverything(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse([]byte(`
databases:
  a: {driver: sqlite}
  b: {driver: sqlite, dsn: ":memory:"}
outbox: {external_brokers: []}
brokers: {default: {type: memory}}
`), "fanout.yaml")
	require.NoError(t, err)
	_, err = fanout.Open(t.Context(), cfg, fanout.WithDB("nobody", &gorm.DB{Config: &gorm.Config{}}))
	for _, text := range []string{`database "a": there is no dsn`, `database "b": an in-memory SQLite database`, `WithDB("nobody")`} {
		require.ErrorContains(t, err, text)
	}
}

// contextName makes a bounded context that no other test has, since tests share the Redis server.
func contextName(prefix string) string { return "shop_" + lettersOf(prefix) }

// cleanStreams removes streams when the test ends.
func cleanStreams(t *testing.T, url string, streams ...string) {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() {
		client.Del(context.WithoutCancel(t.Context()), streams...)
		_ = client.Close()
	})
}

func lettersOf(text string) string {
	letters := []rune{}
	for _, r := range text {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			letters = append(letters, r)
		}
	}
	return string(letters)
}

// migrate does what "fanout migrate" does.
func migrate(t *testing.T, cfg *config.Config, dsn string) {
	t.Helper()
	copied := *cfg
	copied.Databases = map[string]config.Database{"default": {Driver: cfg.Databases["default"].Driver, DSN: config.Secret(dsn)}}
	store, err := fanout.OpenStore(t.Context(), &copied, "default")
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
}
