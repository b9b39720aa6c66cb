package config

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
	// Enabled is set by the section tls, an empty one as well. Connections to Kafka and NATS are
	// encrypted then; the others say so in their URL. Default: false.
	Enabled bool
	// CAFile holds the certificates, in PEM, of the authorities that are trusted. Default: those of
	// the system.
	CAFile string
	// CertFile and KeyFile hold the client's own certificate with its chain, and its private key, in
	// PEM. Default: none.
	CertFile, KeyFile string
	// ServerName is the name that the server's certificate must have. Default: the host of the URL.
	ServerName string
}

// Config reads the files. It is nil where there is no section, so that the client's defaults hold.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
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

// readTLS reads the section, also of brokers that then refuse it.
func (r *reader) readTLS(entry *object, dst *TLS) {
	section := entry.object("tls")
	section.text("ca_file", &dst.CAFile)
	section.text("cert_file", &dst.CertFile)
	section.text("key_file", &dst.KeyFile)
	section.text("server_name", &dst.ServerName)
	section.close()
	dst.Enabled = entry.has("tls")
	if section.has("cert_file") != section.has("key_file") {
		r.problemf(section.at, section.path, "cert_file and key_file go together: the certificate, and the private key that belongs to it")
	}
}

// checkTLS refuses the section where the URL says that there is no TLS.
func (r *reader) checkTLS(entry *object, url Secret, scheme string) {
	f, address := entry.find("tls"), entry.find("url")
	if f == nil || address == nil || f.bad || address.bad || len(url.Reveal()) >= len(scheme) && url.Reveal()[:len(scheme)] == scheme {
		return
	}
	r.problemf(f.key, f.path, "does nothing without TLS: let url begin with %s, or remove it", scheme)
}
