package redisstreams_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// A server that talks TLS alone, with a certificate of an authority of its own.
func TestTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil) // for its certificate, which is for 127.0.0.1 and its own authority
	t.Cleanup(certified.Close)
	certificate := certified.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "server.pem")
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	require.NoError(t, os.WriteFile(file, both, 0o600))
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	known := &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	s := startAs(t, &server{dir: t.TempDir(), tls: known, arguments: func(s *server) []string {
		return []string{
			"--bind", "127.0.0.1", "--port", "0", "--tls-port", s.port, "--dir", s.dir, "--save", "", "--tls-auth-clients", "no",
			"--tls-cert-file", file, "--tls-key-file", file, "--tls-ca-cert-file", file,
		}
	}})
	url := "rediss://" + s.addr()

	b := open(t, url, redisstreams.Settings{TLSConfig: known})
	assert.Equal(t, map[string]int{"": 150}, verdicts(b.Publish(t.Context(), many("s", 150, 120))))
	assert.Empty(t, known.ServerName, "the caller's settings are left alone")

	for name, c := range map[string]struct {
		url  string
		tls  *tls.Config
		says string
	}{
		"an authority that is not trusted": {url, nil, "TLSConfig"},
		"another host":                     {url, &tls.Config{RootCAs: trusted, ServerName: "elsewhere.test", MinVersion: tls.VersionTLS12}, "elsewhere.test"},
		"no TLS":                           {"redis://" + s.addr(), nil, ""},
	} {
		results := open(t, c.url, redisstreams.Settings{TLSConfig: c.tls}).Publish(t.Context(), many("s", 3, 3))
		assert.Equal(t, map[string]int{"unavailable broker": 3}, verdicts(results), name)
		require.ErrorContains(t, results[0].Err, c.says)
	}
	assert.Equal(t, 150, s.length(t, "s"))

	_, err = redisstreams.Open(redisstreams.Settings{URL: adapter.Secret("redis://" + s.addr()), TLSConfig: known})
	require.ErrorContains(t, err, "rediss://")
}
