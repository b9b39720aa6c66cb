package rabbitmq_test

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
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
)

// authority has signed the certificate of one server, for 127.0.0.1.
type authority struct {
	dir  string
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	root := a.sign(t, "ca.pem", template, template, key, key)
	a.pool.AddCert(root)

	key2, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.sign(t, "server.pem", &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, root, key2, key)
	secret, err := x509.MarshalECPrivateKey(key2)
	require.NoError(t, err)
	a.write(t, "server.key", "EC PRIVATE KEY", secret)
	return a
}

func (a *authority) sign(t *testing.T, name string, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	require.NoError(t, err)
	a.write(t, name, "CERTIFICATE", der)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return certificate
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func testTLS(t *testing.T, a *authority, address string) {
	t.Helper()
	target := "amqps://guest:guest@" + address + "/"
	config := &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS12}
	require.NoError(t, open(t, target, rabbitmq.Settings{TLSConfig: config, Exchange: "amq.topic"}).Ping(t.Context()))
	require.Empty(t, config.ServerName, "the caller's configuration is left alone")
	require.NoError(t, open(t, target+"?cacertfile="+url.QueryEscape(a.file("ca.pem")), rabbitmq.Settings{Exchange: "amq.topic"}).Ping(t.Context()))
	require.ErrorContains(t, open(t, target).Ping(t.Context()), "name the server's certificate authority (tls.ca_file)")
	require.Error(t, open(t, "amqp://guest:guest@"+address+"?connection_timeout=500").Ping(t.Context()), "it talks TLS only")
}
