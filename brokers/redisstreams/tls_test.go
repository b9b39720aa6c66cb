package redisstreams_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// authority signs certificates of one test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	dir         string
	pool        *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.certificate, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.pool.AddCert(a.certificate)
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

// issue signs a certificate for 127.0.0.1, in the files name.pem and name.key.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	certificate, err := tls.LoadX509KeyPair(a.write(t, name+".pem", "CERTIFICATE", der), a.write(t, name+".key", "EC PRIVATE KEY", secret))
	require.NoError(t, err)
	return certificate
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) (file string) {
	t.Helper()
	file = filepath.Join(a.dir, name)
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// A server that talks TLS alone, with a certificate of an authority of its own, and wants to see
// one of the client's.
func TestTLS(t *testing.T) {
	t.Parallel()
	a, stranger := newAuthority(t), newAuthority(t)
	a.issue(t, "server")
	known := &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.issue(t, "client")}}
	s := startAs(t, &server{dir: t.TempDir(), tls: known, arguments: func(s *server) []string {
		return []string{
			"--bind", "127.0.0.1", "--port", "0", "--tls-port", s.port, "--dir", s.dir, "--save", "", "--tls-auth-clients", "yes",
			"--tls-cert-file", filepath.Join(a.dir, "server.pem"), "--tls-key-file", filepath.Join(a.dir, "server.key"),
			"--tls-ca-cert-file", filepath.Join(a.dir, "ca.pem"),
		}
	}})
	url := "rediss://" + s.addr()

	b := open(t, url, redisstreams.Settings{TLSConfig: known})
	require.NoError(t, b.Ping(t.Context()))
	assert.Equal(t, map[string]int{"": 150}, verdicts(b.Publish(t.Context(), many("s", 150, 120))))
	assert.Equal(t, 150, s.length(t, "s"))
	assert.Empty(t, known.ServerName, "the caller's settings are left alone")

	for name, c := range map[string]struct {
		url  string
		tls  *tls.Config
		says string
	}{
		"an authority that nobody knows": {url, nil, "TLSConfig"},
		"another authority":              {url, &tls.Config{RootCAs: stranger.pool, Certificates: known.Certificates}, "certificate"},
		"another host":                   {url, &tls.Config{RootCAs: a.pool, Certificates: known.Certificates, ServerName: "example.com"}, "example.com"},
		"no certificate of the client's": {url, &tls.Config{RootCAs: a.pool}, ""}, // the server just closes, or says so
		"no TLS":                         {"redis://" + s.addr(), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results := open(t, c.url, redisstreams.Settings{TLSConfig: c.tls}).Publish(t.Context(), many("s", 3, 3))
			assert.Equal(t, map[string]int{"unavailable broker": 3}, verdicts(results))
			require.ErrorContains(t, results[0].Err, c.says)
			assert.Equal(t, 150, s.length(t, "s"), "nothing came in addition")
		})
	}

	_, err := redisstreams.Open(redisstreams.Settings{URL: adapter.Secret("redis://" + s.addr()), TLSConfig: known})
	require.ErrorContains(t, err, "rediss://")
}
