package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/uow"
)

// What partners may see, name by name: the flat fields beside a message, and each member of either
// form. docs/guarantees.md says the same in words. A name that is added anywhere on the way fails
// the test below until it is listed here.
var (
	flatFields = []string{"id", "type", "ordering_key", "correlation_id", "content-type", "traceparent", "region"} // region: configured below
	nativeForm = []string{
		"data", "metadata", "metadata.headers", "metadata.headers.id", "metadata.headers.time", "metadata.headers.type", "metadata.headers.stream",
		"metadata.headers.traceparent", "metadata.headers.traceparent.trace_id", "metadata.headers.traceparent.parent_id", "metadata.headers.traceparent.sampled",
		"metadata.headers.deadline",
		"metadata.domain", "metadata.domain.kind", "metadata.domain.stream_category", "metadata.domain.version",
		"metadata.domain.sequence_id", "metadata.domain.correlation_id", "metadata.domain.causation_id",
		"metadata.envelope", "metadata.envelope.specversion",
	}
	cloudEventsForm = []string{
		"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "traceparent", "partitionkey", "sequence", "correlationid",
		"causationid", "data", "own", // which is listed below; tenant and actor are not
	}
)

// Shipment is an aggregate with a version, so that its events have all that an event can have.
type Shipment struct {
	ID      string
	Version int64
	uow.Aggregate
}

// Shipped goes to partners, Weighed does not.
type (
	Shipped struct{ Note string }
	Weighed struct{ Secret string }
)

const inHouse = "never-to-be-seen-outside"

// Whatever events and requests hold: what two partners find in Redis and in Pub/Sub has the listed
// names and no others, and nothing of the events that are not published.
func TestOnlyListedFieldsReachPartners(t *testing.T) {
	t.Parallel()
	redisURL, prefix, dsn := testenv.Redis(t), testenv.RedisPrefix(t), filepath.Join(t.TempDir(), "shop.db")
	pubsub := pstest.NewServer()
	t.Cleanup(func() { require.NoError(t, pubsub.Close()) })
	_, err := pubsub.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/acme/topics/partner"})
	require.NoError(t, err)
	cfg, err := config.Parse(fmt.Appendf(nil, `
databases: {default: {driver: sqlite, dsn: %q}}
outbox: {external_brokers: [streams, topics]}
brokers:
  default: {type: memory}
  streams: {type: redis, url: %q, destination: "%spartner", attributes: {region: eu}}
  topics: {type: pubsub, project: acme, endpoint: %q, destination: partner, format: cloudevents, extensions: [own], attributes: {region: eu}}
`, dsn, redisURL, prefix, pubsub.Addr), "fanout.yaml")
	require.NoError(t, err)
	migrate(t, cfg, dsn)

	const number = 60
	ship(t, cfg, dsn, number)
	inside := memory.New()
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithBroker("default", inside), fanout.WithBrokerType(gcppubsub.Type()),
		fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	settings, err := redis.ParseURL(redisURL)
	require.NoError(t, err)
	client := redis.NewClient(settings)
	defer client.Close()
	require.Eventually(t, func() bool {
		n, err := client.XLen(t.Context(), prefix+"partner").Result()
		return err == nil && n >= number && len(pubsub.Messages()) >= number && len(inside.Messages("shipping::shipment")) >= 2*number
	}, 30*time.Second, 20*time.Millisecond)
	stop()
	require.NoError(t, <-done)

	entries, err := client.XRange(t.Context(), prefix+"partner", "-", "+").Result()
	require.NoError(t, err)
	assert.Len(t, entries, number)
	for _, entry := range entries {
		assert.NotContains(t, fmt.Sprint(entry.Values), inHouse)
		assert.Subset(t, append(flatFields, "data"), slices.Collect(maps.Keys(entry.Values)))
		payload := entry.Values["data"].(string)
		assert.Subset(t, nativeForm, members(t, payload, "", "data"), payload)
	}
	assert.Condition(t, func() bool { // what must not leave is there
		return slices.ContainsFunc(inside.Messages("shipping::shipment"), func(m brokers.Message) bool { return strings.Contains(string(m.Payload), inHouse) })
	})
	own := 0
	for _, message := range pubsub.Messages() {
		assert.NotContains(t, string(message.Data)+fmt.Sprint(message.Attributes), inHouse)
		assert.Subset(t, append(flatFields, "Content-Type"), slices.Collect(maps.Keys(message.Attributes)))
		own += strings.Count(string(message.Data), `"own":`)
		assert.Subset(t, cloudEventsForm, members(t, string(message.Data), "", "data"), string(message.Data))
		assert.Regexp(t, "^(|shipping::shipment-.*)$", message.OrderingKey)
	}
	assert.Positive(t, own, "what is listed leaves")
}

// ship commits published events with whatever can be known about them, and as many that stay
// inside.
func ship(t *testing.T, cfg *config.Config, dsn string, number int) {
	t.Helper()
	events := envelope.NewCatalog("shipping")
	envelope.Register[Shipped](events, envelope.Published())
	envelope.Register[Weighed](events)
	db, err := gorm.Open(sqlite.Open(dsn+"?_pragma=busy_timeout(10000)"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	defer sqlDB.Close()
	require.NoError(t, db.AutoMigrate(&Shipment{}))
	require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))
	text := rapid.StringMatching(`[ -~äß☃]{0,12}`)
	for i := range number {
		ctx := envelope.WithCorrelationID(t.Context(), text.Example(i))
		ctx = envelope.WithCausationID(ctx, text.Example(i+1))
		ctx = envelope.WithTenantID(ctx, text.Example(i+2))
		ctx = envelope.WithActor(ctx, text.Example(i+3))
		ctx = envelope.WithIdempotencyKey(ctx, text.Example(i+4))
		ctx = envelope.WithOriginStream(ctx, text.Example(i+5))
		ctx = envelope.WithPriority(ctx, envelope.PriorityLevel(i%200-100))
		ctx = envelope.WithExtension(ctx, "own", text.Example(i+6))
		ctx = envelope.WithTrace(ctx, fmt.Sprintf("00-4bf92f3577b34da6a3ce929d0e0e47%02x-00f067aa0ba902b7-01", i), "vendor=a:1")
		shipment := &Shipment{ID: fmt.Sprint(i)}
		require.NoError(t, db.WithContext(ctx).Create(shipment).Error)
		shipment.Raise(Shipped{Note: text.Example(i + 7)}, envelope.TTL(time.Hour+time.Duration(i)*time.Second))
		shipment.Raise(Weighed{Secret: inHouse})
		require.NoError(t, db.WithContext(ctx).Save(shipment).Error)
	}
}

// members lists the names in an object, with those in objects in it but for the opaque ones.
func members(t *testing.T, text, path string, opaque ...string) []string {
	t.Helper()
	var (
		values map[string]json.RawMessage
		list   []string
	)
	require.NoError(t, json.Unmarshal([]byte(text), &values), "%s", text)
	for name, value := range values {
		list = append(list, path+name)
		if value[0] == '{' && !slices.Contains(opaque, name) {
			list = append(list, members(t, string(value), path+name+".", opaque...)...)
		}
	}
	return list
}
