package adapter_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
)

func TestTLSIsNothingWhereNothingIsSet(t *testing.T) {
	t.Parallel()
	secured, err := (*adapter.TLS)(nil).Config()
	require.NoError(t, err)
	assert.Nil(t, secured)
	secured, err = (&adapter.TLS{ServerName: "broker.internal"}).Config()
	require.NoError(t, err)
	assert.Equal(t, "broker.internal", secured.ServerName)
	assert.Nil(t, secured.RootCAs, "the system's")
	assert.EqualValues(t, tls.VersionTLS12, secured.MinVersion)
}

// Each error says which file it is about; none shows what is in it.
func TestTLSFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing, wrong := filepath.Join(dir, "missing.pem"), filepath.Join(dir, "wrong.pem")
	require.NoError(t, os.WriteFile(wrong, []byte("hunter2"), 0o600))
	for want, settings := range map[string]*adapter.TLS{
		"tls: ca_file: open " + missing:                                      {CAFile: missing},
		"tls: ca_file: " + wrong + " has no certificate in PEM":              {CAFile: wrong},
		"tls: cert_file and key_file: open " + missing:                       {CertFile: missing, KeyFile: wrong},
		"tls: cert_file " + wrong + " and key_file " + wrong + ": tls: fail": {CertFile: wrong, KeyFile: wrong},
	} {
		_, err := settings.Config()
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}
