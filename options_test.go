package fanout_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/store/driver"
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

// The client of a type may be in a module of its own. A program that has not imported it is told
// how.
func TestOpenNamesTheModuleOfAType(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: '"+filepath.Join(t.TempDir(), "shop.db")+"'}}\n"+
		"brokers: {default: {type: pubsub, project: acme, endpoint: 'localhost:8085'}}\n"), "fanout.yaml")
	require.NoError(t, err)
	_, err = fanout.Open(t.Context(), cfg)
	const want = `fanout: broker "default": the client of type "pubsub" is not linked: import github.com/gorm-fanout/fanout/brokers/gcppubsub ` +
		`and pass fanout.WithBrokerType("pubsub", gcppubsub.FromConfig)`
	require.ErrorContains(t, err, want)
	_, err = fanout.OpenBroker(t.Context(), cfg, "default")
	require.EqualError(t, err, want)
	_, err = fanout.OpenBroker(t.Context(), cfg, "default", fanout.WithBrokerType(config.TypePubSub, nil))
	require.EqualError(t, err, `fanout: broker "default": the factory that WithBrokerType was given for type "pubsub" is nil`)
	given := memory.New()
	broker, err := fanout.OpenBroker(t.Context(), cfg, "default", fanout.WithBroker("default", given))
	require.NoError(t, err)
	assert.Same(t, given, broker, "what is given needs no module")
}

// A database's driver, too.
func TestOpenNamesTheModuleOfADriver(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse([]byte("databases: {main: {driver: mysql, dsn: 'ada:hush@tcp(127.0.0.1:1)/shop'}}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	_, err = fanout.OpenStore(t.Context(), cfg, "main")
	const want = `fanout: database "main": the driver mysql is not linked: import github.com/gorm-fanout/fanout/outbox/mysql ` +
		`and pass fanout.WithDriver(outbox.MySQL, mysql.FromConfig)`
	require.EqualError(t, err, want)
	_, err = fanout.Open(t.Context(), cfg)
	require.ErrorContains(t, err, want)

	var asked config.Database
	factory := func(_ context.Context, database config.Database, table string, conns int) (driver.Store, error) {
		asked = database
		return nil, fmt.Errorf("asked for %s with %d connections", table, conns)
	}
	_, err = fanout.OpenStore(t.Context(), cfg, "main", fanout.WithDriver(outbox.MySQL, factory))
	require.EqualError(t, err, `fanout: database "main": asked for outbox_messages with 5 connections`)
	assert.Equal(t, cfg.Databases["main"], asked)
}
