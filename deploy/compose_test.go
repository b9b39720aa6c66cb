package deploy_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
)

// loaded is a configuration as the command reads it, with these variables and no others.
func loaded(t *testing.T, path string, env map[string]string, opts ...config.Option) *config.Config {
	t.Helper()
	opts = append(opts, config.WithBrokerTypes(fanout.BrokerTypes()...), config.WithEnv(func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}))
	cfg, err := config.Load(path, opts...)
	require.NoError(t, err)
	assert.Empty(t, cfg.Warnings)
	return cfg
}

// graceful checks that a relay may take as long to stop as it needs: the publishes in progress, and the
// requests of the dashboard.
func graceful(t *testing.T, cfg *config.Config, grace time.Duration) {
	t.Helper()
	const monitorStops = 5 * time.Second
	assert.Greater(t, grace, cfg.Outbox.Policy.WithDefaults().ShutdownTimeout+monitorStops)
}

func TestCompose(t *testing.T) {
	t.Parallel()
	directory, err := filepath.Abs("compose")
	require.NoError(t, err)
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: directory, ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(directory, "compose.yaml")}}, Environment: types.Mapping{},
	}, loader.WithDiscardEnvFiles)
	require.NoError(t, err)
	for name, service := range project.Services {
		for _, port := range service.Ports {
			assert.Equal(t, "127.0.0.1", port.HostIP, "%s: whose passwords are known", name)
		}
	}

	for _, name := range []string{"migrate", "relay"} {
		service := project.Services[name]
		assert.FileExists(t, filepath.Join(service.Build.Context, service.Build.Dockerfile))
		assert.True(t, service.ReadOnly)
		assert.Equal(t, []string{"ALL"}, service.CapDrop)
		require.Len(t, service.Volumes, 1)
		assert.Equal(t, "/etc/fanout/fanout.yaml", service.Volumes[0].Target)
		assert.Contains(t, []string(service.Command), service.Volumes[0].Target)
		cfg := loaded(t, service.Volumes[0].Source, service.Environment.Resolve(os.LookupEnv).ToMapping())
		assert.Contains(t, cfg.Databases["default"].DSN.Reveal(), "@postgres:5432/")
	}
	relay := project.Services["relay"]
	cfg := loaded(t, relay.Volumes[0].Source, relay.Environment.ToMapping())
	require.Len(t, relay.Ports, 1)
	assert.Equal(t, "0.0.0.0:8088", cfg.Monitor.Listen)
	assert.EqualValues(t, 8088, relay.Ports[0].Target)
	graceful(t, cfg, time.Duration(*relay.StopGracePeriod))
	assert.Equal(t, types.ServiceConditionCompletedSuccessfully, relay.DependsOn["migrate"].Condition)
	assert.Equal(t, types.ServiceConditionHealthy, project.Services["migrate"].DependsOn["postgres"].Condition)
}
