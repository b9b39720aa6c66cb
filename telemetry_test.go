package fanout_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
)

func TestTelemetryWithoutProviders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbox.db")
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: 'file:"+file+"'}}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	store, err := fanout.OpenStore(t.Context(), cfg, "main")
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = fanout.Open(t.Context(), cfg, fanout.WithMeterProvider(nil), fanout.WithTracerProvider(nil))
	require.ErrorContains(t, err, "fanout: WithMeterProvider: otelrelay: no meter provider")
	require.ErrorContains(t, err, "fanout: WithTracerProvider: otelrelay: no tracer provider")
}
