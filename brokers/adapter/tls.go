package adapter

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS is how the client of a broker and its server prove to each other who they are. The zero value
// trusts the authorities of the system, and has no certificate.
type TLS struct {
	// CAFile holds the certificates, in PEM, of the authorities that are trusted. Default: those of
	// the system.
	CAFile string `config:"ca_file"`
	// CertFile and KeyFile hold the client's own certificate with its chain, and its private key, in
	// PEM. Default: none.
	CertFile string `config:"cert_file"`
	KeyFile  string `config:"key_file"`
	// ServerName is the name that the server's certificate must have. Default: the host of the URL.
	ServerName string `config:"server_name"`
}

// Config reads the files. It is nil where t is, so that the client's defaults hold.
func (t *TLS) Config() (*tls.Config, error) {
	if t == nil {
		return nil, nil //nolint:nilnil // as crypto/tls has it: nil is the default configuration
	}
	config := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		authorities, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls: ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("tls: ca_file: %s has no certificate in PEM (-----BEGIN CERTIFICATE-----)", t.CAFile)
		}
	}
	if t.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		var missing *os.PathError
		switch {
		case errors.As(err, &missing):
			return nil, fmt.Errorf("tls: cert_file and key_file: %w", err)
		case err != nil:
			return nil, fmt.Errorf("tls: cert_file %s and key_file %s: %w", t.CertFile, t.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// Check reports what is wrong with the section of that key.
func (t *TLS) Check(section Section, key string) {
	if section.Has(key+".cert_file") != section.Has(key+".key_file") {
		section.Rejectf(key, "cert_file and key_file go together: the certificate, and the private key that belongs to it")
	}
}
