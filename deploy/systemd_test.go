package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

const serviceUnit = "systemd/fanout-relay.service"

func TestUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(serviceUnit)
	require.NoError(t, err)
	options, err := unit.DeserializeOptions(bytes.NewReader(text))
	require.NoError(t, err)
	values := map[string]string{}
	for _, option := range options {
		values[option.Section+"."+option.Name] = option.Value
	}
	stop, err := time.ParseDuration(values["Service.TimeoutStopSec"])
	require.NoError(t, err)
	graceful(t, new(config.Config), stop)
	assert.Equal(t, "2", values["Service.RestartPreventExitStatus"], "the exit code of a wrong configuration")
	assert.Contains(t, values["Service.ExecStart"], "/fanout relay --config /etc/fanout/fanout.yaml")
}

// systemd itself understands every line, and calls the service well locked in.
func TestUnitByAnalysis(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	text, err := os.ReadFile(serviceUnit)
	require.NoError(t, err)
	program, err := os.Executable() // in place of the command, which is not installed
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), filepath.Base(serviceUnit))
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), "ExecStart=/usr/local/bin/fanout ", "ExecStart="+program+" ", 1)), 0o600))

	said, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput()
	require.NoError(t, err, string(said))
	assert.Empty(t, string(said))
	const mostExposed = "15" // of 100
	said, err = exec.CommandContext(t.Context(), analyze, "security", "--no-pager", "--offline=yes", "--threshold="+mostExposed, path).CombinedOutput()
	require.NoError(t, err, string(said))
}
