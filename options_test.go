package fanout_test

import (
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

// What is given under a wrong name would be used by nobody: the relay would deliver to the
// configured broker instead.
func TestOpenRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: '"+filepath.Join(t.TempDir(), "shop.db")+"'}}\n"+
		"outbox: {external_brokers: [partner]}\nbrokers: {default: {type: memory}, partner: {type: memory}, idle: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	_, err = fanout.Open(t.Context(), cfg, fanout.WithDB("mian", nil), fanout.WithDB("main", nil),
		fanout.WithBroker("partnr", memory.New()), fanout.WithBroker("idle", memory.New()), fanout.WithBroker("partner", nil))
	require.Error(t, err)
	assert.Contains(t, err.Error(), `fanout: WithBroker("idle"): the configuration uses no such broker (it uses ["default" "partner"])`)
	assert.Contains(t, err.Error(), `fanout: WithBroker("partner"): the broker is nil`)
	assert.Contains(t, err.Error(), `fanout: WithBroker("partnr"): the configuration uses no such broker (it uses ["default" "partner"])`)
	assert.Contains(t, err.Error(), `fanout: WithDB("main"): the handle is nil: did gorm.Open fail?`)
	assert.Contains(t, err.Error(), `fanout: WithDB("mian"): the handle is nil: did gorm.Open fail?`)
}

// A writer whose rows the relay would not read is refused, too.
func TestOpenRefusesWritersOfOtherTables(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: '"+filepath.Join(t.TempDir(), "shop.db")+"'}}\n"+
		"brokers: {default: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	writer := func(dialect outbox.Dialect, table string) *outbox.Writer {
		w, err := outbox.NewWriter(outbox.WriterConfig{Dialect: dialect, Events: wakeUps(), Routing: outbox.Routing{Table: table}})
		require.NoError(t, err)
		return w
	}
	_, err = fanout.Open(t.Context(), cfg, fanout.WithWriter("main", nil), fanout.WithWriter("mian", writer(outbox.SQLite, "")),
		fanout.WithWriter("main", writer(outbox.Postgres, "")), fanout.WithWriter("main", writer(outbox.SQLite, "others")))
	require.Error(t, err)
	assert.Contains(t, err.Error(), `fanout: WithWriter("main"): the writer is nil: did outbox.NewWriter fail?`)
	assert.Contains(t, err.Error(), `fanout: WithWriter("mian"): the configuration has no such database (it has ["main"])`)
	assert.Contains(t, err.Error(), `fanout: WithWriter("main"): the writer is for postgres, the configuration says sqlite`)
	assert.Contains(t, err.Error(), `fanout: WithWriter("main"): it writes to table "others" for broker "default", the relay reads table "outbox_messages"`)
}

// The client of a type may be in a module of its own. A program that has not imported it is told
// how.
func TestOpenNamesTheModuleOfAType(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: '"+filepath.Join(t.TempDir(), "shop.db")+"'}}\n"+
		"brokers: {default: {type: pubsub, project: acme, endpoint: 'localhost:8085'}}\n"), "fanout.yaml")
	require.NoError(t, err)
	_, err = fanout.Open(t.Context(), cfg)
	const want = `fanout: broker "default": type "pubsub" is not linked, only ["redis" "rabbitmq" "webhook" "memory"]: import its adapter, ` +
		`such as github.com/gorm-fanout/fanout/brokers/kafka, and pass its type: fanout.WithBrokerType(kafka.Type())`
	require.ErrorContains(t, err, want)
	_, err = fanout.OpenBroker(t.Context(), cfg, "default")
	require.EqualError(t, err, want)
	_, err = fanout.OpenBroker(t.Context(), cfg, "default", fanout.WithBrokerType(adapter.Type{Name: "pubsub"}))
	require.ErrorContains(t, err, "brokers.default: the adapter of type pubsub is wrong: New must return a pointer to a struct, but returns <nil>")
	given := memory.New()
	broker, err := fanout.OpenBroker(t.Context(), cfg, "default", fanout.WithBroker("default", given))
	require.NoError(t, err)
	assert.Same(t, given, broker, "what is given needs no module")
}

// A writer or a plugin whose routing was forgotten would write nothing for partners, and lock no keys.
func TestOpenRefusesAnotherRouting(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: x.db}}\noutbox: {external_brokers: [partner], serialize_keys: true}\n"+
		"brokers: {default: {type: memory}, partner: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	events := envelope.NewCatalog("ordering")
	w, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.SQLite, Events: events})
	require.NoError(t, err)
	db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "shop.db")), &gorm.Config{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	require.NoError(t, db.Use(gormplugin.New(events, outbox.Routing{})))
	_, err = fanout.Open(t.Context(), cfg, fanout.WithWriter("main", w), fanout.WithWriter("main", &outbox.Writer{}), fanout.WithDB("main", db))
	for _, who := range []string{`WithWriter("main"): it`, `WithDB("main"): its plugin`} {
		require.ErrorContains(t, err, `fanout: `+who+` writes for the external brokers [], the configuration has ["partner"]: give both the same configuration`)
		require.ErrorContains(t, err, `fanout: `+who+` has SerializeKeys false, the configuration true: all writers of a table have to agree`)
	}
	require.ErrorContains(t, err, `fanout: WithWriter("main"): the writer is empty: make it with outbox.NewWriter`)
}
