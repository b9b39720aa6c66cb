package fanout_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
)

// What a partner gets in either form verifies with the public key, and with the key before it while it is
// changed; what the application's own consumers get is not signed. No key is in a row or a line of the log.
func TestSignaturesFromTheFile(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	env := map[string]string{"NEW_KEY": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "OLD_KEY": webhook.NewSecret()}
	cfg, err := config.Parse([]byte(`
databases: {default: {driver: sqlite}}
outbox: {external_brokers: [partner, events]}
brokers:
  default: {type: memory}
  partner:
    type: memory
    destination: partner.{aggregate}
    sign: {2026-11: "${NEW_KEY}", 2026-05: "${OLD_KEY}"}
  events:
    type: memory
    format: cloudevents
    attributes: {environment: test}
    sign: {2026-11: "${NEW_KEY}"}
`), "fanout.yaml", config.WithEnv(func(name string) (string, bool) { text, found := env[name]; return text, found }))
	require.NoError(t, err)

	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published())
	db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "shop.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, db.AutoMigrate(&Order{}))
	require.NoError(t, fanout.Migrate(t.Context(), cfg, fanout.WithDB("default", db)))
	require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))
	var log bytes.Buffer
	internal, partner, cloud := memory.New(), memory.New(), memory.New()
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithDB("default", db), fanout.WithBroker("default", internal), fanout.WithBroker("partner", partner),
		fanout.WithBroker("events", cloud), fanout.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42", Customer: "ada", Status: "placed"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		return tx.Save(order).Error
	}))
	one := func(broker *memory.Broker, destination string) (brokers.Message, map[string]string) {
		messages, err := broker.Wait(t.Context(), destination, 1)
		require.NoError(t, err)
		return messages[0], maps.Collect(messages[0].Fields)
	}
	keys := func(id, key string) *signature.Keys {
		keys := new(signature.Keys)
		require.NoError(t, keys.Add(id, key))
		return keys
	}
	newer, older := keys("2026-11", "whpk_"+base64.StdEncoding.EncodeToString(public)), keys("2026-05", env["OLD_KEY"])

	m, attributes := one(partner, "partner.order")
	for _, known := range []*signature.Keys{newer, older} {
		signed, err := known.Verify("partner.order", attributes, m.Payload)
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now(), signed, time.Minute)
		_, err = known.Verify("ordering::order", attributes, m.Payload)
		require.ErrorContains(t, err, `is not that of this message in destination "ordering::order"`, "the destination of another broker")
	}
	m, attributes = one(cloud, "ordering::order")
	_, err = newer.Verify("ordering::order", attributes, m.Payload)
	require.NoError(t, err)
	assert.Equal(t, "test", attributes["environment"])
	_, err = older.Verify("ordering::order", attributes, m.Payload)
	require.ErrorContains(t, err, "no known key has signed the message")
	_, attributes = one(internal, "ordering::order")
	assert.NotContains(t, attributes, "signature")
	stop()
	require.NoError(t, <-done)

	var rows []map[string]any
	require.NoError(t, db.Table("outbox_messages").Find(&rows).Error)
	require.Len(t, rows, 3)
	said := fmt.Sprintf("%s %s", log.String(), rows)
	for _, secret := range []string{env["OLD_KEY"][len("whsec_"):], base64.StdEncoding.EncodeToString(der)[24:], "v1a,"} {
		assert.NotContains(t, said, strings.TrimRight(secret, "="))
	}
}

// A key that cannot sign is found when the relay is opened, by its path.
func TestOpenRefusesWrongSigningKeys(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Brokers: map[string]config.Broker{"default": {Sign: map[string]config.Secret{"2026-11": "hunter2"}}}}
	_, err := fanout.Open(t.Context(), cfg, fanout.WithBroker("default", memory.New()))
	require.ErrorContains(t, err, `brokers.default.sign: key "2026-11": the key is not whsec_`)
	assert.NotContains(t, err.Error(), "hunter2")
}
