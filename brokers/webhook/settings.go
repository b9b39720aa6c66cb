package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	// DefaultConcurrency is how many requests are in progress at once.
	DefaultConcurrency = 8
	// defaultTimeout bounds one request, from its beginning until the answer is there.
	defaultTimeout = 15 * time.Second
)

// Settings are those of one endpoint, in Go and in a configuration of type webhook.
type Settings struct {
	// URL of the endpoint, https://partner.example/hooks. User and password in it become basic
	// authentication. Required.
	URL adapter.Secret `config:"url"`
	// Secrets sign each message, 1 to 5 of them: one, or the new and the old one while the receiver
	// changes over. [NewSecret] makes one. Required.
	Secrets []adapter.Secret `config:"secrets"`
	// Concurrency is how many requests are in progress at once, over all calls, 1 to 256. Messages of one
	// key are sent one after the other, whatever it is. Default: [DefaultConcurrency].
	Concurrency int `config:"concurrency,max=256"`
	// RequestTimeout bounds one request, within the context of the call. What is not answered by then
	// counts as an outage of the endpoint. Default: 15 s.
	RequestTimeout time.Duration `config:"request_timeout,min=1ms"`
	// MaxMessageBytes is the largest body that the endpoint takes; a larger payload is final. Default:
	// 0, no limit known.
	MaxMessageBytes int `config:"max_message_bytes,max=1073741824"`
	// AllowHTTP allows a URL without TLS: anyone on the path can read, though not change, what is
	// sent. Default: false.
	AllowHTTP bool `config:"allow_http"`
	// AllowPrivateNetworks allows an endpoint whose address is not public. Do so for endpoints of your
	// own, never for those that others may enter. Default: false.
	AllowPrivateNetworks bool `config:"allow_private_networks"`
	// TLS has the authorities that are trusted, or a certificate of one's own. Default: the system's
	// authorities.
	TLS *adapter.TLS `config:"tls"`
	// TLSConfig is in place of TLS where a program has it in memory. It must not be changed afterwards.
	TLSConfig *tls.Config `json:"-" yaml:"-"`
}

// Type is the type webhook of configurations. It is built into package fanout.
func Type() adapter.Type {
	return adapter.Type{Name: "webhook", New: func() adapter.Settings { return new(Settings) }}
}

// Open implements [adapter.Settings] by the function [Open].
func (s *Settings) Open(context.Context, string) (brokers.Broker, error) {
	b, err := Open(*s)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// Check implements [adapter.Settings]. [Open] looks at the secrets and the address.
func (s *Settings) Check(section adapter.Section) {
	schemes := []string{"https://"}
	if s.AllowHTTP || strings.HasPrefix(s.URL.Reveal(), "http://") {
		schemes = append(schemes, "http://") // parseURL refuses it with the key that allows it
	}
	if section.Require("url", "https://partner.example/hooks") {
		adapter.CheckURL(section, "url", s.URL, schemes...)
	}
	section.Require("secrets", "[whsec_...]")
	section.Removef("sign", "does nothing for a broker of type webhook, which signs each message with its secrets: remove it")
	s.TLS.Check(section, "tls")
	if section.Has("url") && section.Sound("url") && !strings.HasPrefix(s.URL.Reveal(), "https://") {
		section.Removef("tls", "does nothing without TLS: let url begin with https://, or remove it")
	}
	if publish := section.PublishTimeout(); publish > 0 && s.RequestTimeout > publish {
		section.Rejectf("request_timeout", "is %s, longer than publish_timeout (%s), which ends the request before", s.RequestTimeout, publish)
	}
	if section.Has("url") && section.Sound("url") {
		if _, err := parseURL(s); err != nil {
			section.Rejectf("url", "%s", err)
		}
		_, query, _ := strings.Cut(s.URL.Reveal(), "?")
		section.Place(adapter.Place{
			Servers: []string{adapter.ServerOf(s.URL, "443", "", "")}, Inside: query, Elsewhere: "URL",
			Partners: true, // an endpoint may get two sorts of events, each signed in its way
		})
	}
	if section.Has("secrets") && section.Sound("secrets") {
		if _, err := parseSecrets(s.Secrets); err != nil {
			section.Rejectf("secrets", "%s", err)
		}
	}
}

func withDefaults(s Settings) Settings {
	s.Concurrency = min(cmp.Or(max(s.Concurrency, 0), DefaultConcurrency), mostConcurrency)
	s.RequestTimeout = cmp.Or(max(s.RequestTimeout, 0), defaultTimeout)
	return s
}
