package nats

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	// defaultMaxPayload is max_payload of a server that is not configured otherwise.
	defaultMaxPayload = 1 << 20
	// maxMaxPayload is the most that a server can be configured to take.
	maxMaxPayload = 64 << 20
	// defaultMaxPending keeps several calls of a processor busy, and with ordinary messages of some
	// kilobytes a server's buffers small.
	defaultMaxPending = 2000
	maxMaxPending     = 20_000

	defaultTimeout = 10 * time.Second
)

// Settings are those of one broker, in Go and in a configuration of type nats. What has no sensible
// meaning (a negative size) counts as not given.
type Settings struct {
	// URL of the servers: nats://user:password@host:port, tls://, ws:// or wss://, or several of them
	// with commas between. A user without a password is a token. Required.
	URL adapter.Secret `config:"url"`
	// SubjectPrefix begins every subject, such as "events.". It may contain ASCII letters, digits, "-",
	// "_" and single dots, and have 120 bytes. Default: none.
	SubjectPrefix string `config:"subject_prefix"`
	// CredentialsFile has a JWT and the seed of its user. It is read at each connection, so a renewed one
	// is found; [Open] wants it to be there. Default: user and password, or a token, of the URL.
	CredentialsFile string `config:"credentials_file"`
	// TLS makes connections use TLS with authorities, or a certificate, of one's own; URLs that begin with
	// tls:// use TLS without it. Default: nil.
	TLS *adapter.TLS `config:"tls"`
	// CreateDestinations creates a stream for a subject that no stream takes, when the first message is
	// refused for that reason. The stream takes this subject alone; its name is the subject with "+" for
	// ".". Several processes may create it at the same time. The user needs to publish to
	// $JS.API.STREAM.CREATE.*. Default: false, a missing stream makes the destination unavailable.
	CreateDestinations bool `config:"create_destinations"`
	// Stream has the settings of streams that are created.
	Stream StreamSettings `config:"stream"`
	// MessageTTL hands what is left of an event's time to live on to the servers (2.11 or later), which remove the
	// message from its stream when that is over, in whole seconds (header Nats-TTL). The streams must allow it;
	// those that the broker creates do. Default: false.
	MessageTTL bool `config:"message_ttl"`
	// MaxMessageBytes is max_payload of the servers, above 64 KiB and at most 64 MiB. Payloads larger than
	// it less 32 KiB, which are for headers, fail permanently. The server's own limit is checked as well.
	// Default: 1 MiB, as theirs.
	MaxMessageBytes int `config:"max_message_bytes,min=65537,max=67108864"`

	// The settings below exist in Go alone.

	// TLSConfig is in place of TLS where a program has it in memory. It must not be changed afterwards.
	TLSConfig *tls.Config `json:"-" yaml:"-"`
	// Client has further options of the client: how to log in (nats.Token, nats.NkeyOptionFromSeed), or
	// how the servers' monitoring names the connections (nats.Name; default "fanout"). Those for
	// reconnecting and for handlers are the broker's own.
	Client []nats.Option `json:"-" yaml:"-"`
	// MaxPending bounds the messages that wait for their acknowledgment, over all calls of Publish
	// together; at most 20,000. Those of one call have 8 MiB besides. Default: 2,000.
	MaxPending int
	// Timeout bounds how long a message waits for its acknowledgment, within the context of the call. One
	// that was not acknowledged by then may have been stored; the servers count as out. Default: 10 s.
	Timeout time.Duration
}

// StreamSettings are the settings of streams that a broker creates. The zero value is a stream on
// disk, without replicas, that keeps everything.
type StreamSettings struct {
	// Replicas is the number of servers that hold the stream, 1 to 5. Default: 1.
	Replicas int `config:"replicas,max=5"`
	// MaxAge is how long a stream keeps a message, at least 1 s. Default: 0, no bound.
	MaxAge time.Duration `config:"max_age,min=1s"`
	// DuplicateWindow is how long the server remembers message ids, at least 1 s. Default: the server's,
	// 2 m.
	DuplicateWindow time.Duration `config:"duplicate_window,min=1s"`
	// MaxBytes and MaxMessages bound the stream, in Go alone; the oldest messages go. Default: 0, no bound.
	MaxBytes, MaxMessages int64
	// Memory keeps the stream in memory, in Go alone: a restart of the server loses it. Default: false.
	Memory bool
}

func (s *StreamSettings) config(subject string) jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name: streamName(subject), Subjects: []string{subject}, Replicas: s.Replicas, MaxAge: s.MaxAge, MaxBytes: s.MaxBytes,
		MaxMsgs: s.MaxMessages, Duplicates: s.DuplicateWindow, Description: "created by Fanout for the subject of a destination",
	}
	if s.Memory {
		config.Storage = jetstream.MemoryStorage
	}
	return config
}

// stream is the one that is created for a subject.
func (o *options) stream(subject string) jetstream.StreamConfig {
	config := o.streams.config(subject)
	config.AllowMsgTTL = o.ttl
	return config
}

// Type is the type nats of configurations. A program that delivers passes it to fanout.WithBrokerType.
func Type() adapter.Type {
	return adapter.Type{Name: "nats", New: func() adapter.Settings { return new(Settings) }}
}

// Open implements [adapter.Settings] by the function [Open].
func (s *Settings) Open(context.Context, string) (brokers.Broker, error) {
	b, err := Open(*s)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// Check implements [adapter.Settings].
func (s *Settings) Check(section adapter.Section) {
	s.TLS.Check(section, "tls")
	if section.Sound("create_destinations") && !s.CreateDestinations {
		section.Removef("stream", "does nothing without create_destinations: true")
	}
	if section.Sound("subject_prefix") {
		if err := checkPrefix(s.SubjectPrefix); err != nil {
			section.Rejectf("subject_prefix", "%s", err)
		} else if s.SubjectPrefix != "" && !strings.HasSuffix(s.SubjectPrefix, ".") {
			section.Warnf("subject_prefix", "does not end with a dot: subjects begin with %s", s.SubjectPrefix+"ordering")
		}
	}
	if !section.Require("url", "nats://user:password@host:4222") || !section.Sound("url") {
		return
	}
	if scheme, _, found := strings.Cut(s.URL.Reveal(), "://"); found && !slices.Contains(schemes, scheme) {
		section.Rejectf("url", "must begin with nats://, tls://, ws:// or wss://")
		return
	}
	if !validURL(s.URL.Reveal()) {
		section.Rejectf("url", "%s", strings.TrimPrefix(errURL.Error(), "nats: open: "))
		return
	}
	place := adapter.Place{Inside: s.SubjectPrefix, Elsewhere: "server or subject_prefix"}
	for server := range strings.SplitSeq(s.URL.Reveal(), ",") {
		if server = strings.TrimSpace(server); !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		place.Servers = append(place.Servers, adapter.ServerOf(adapter.Secret(server), "4222", "", ""))
	}
	section.Place(place)
}

// options of a broker, as its settings say.
type options struct {
	prefix     string
	maxPayload int
	maxPending int
	timeout    time.Duration   // of an acknowledgment
	streams    *StreamSettings // nil = missing streams are not created
	client     []nats.Option
	ttl        bool // messages have theirs
}

// options are what the settings mean. They are checked as far as that needs no server.
func (s *Settings) options() (options, error) {
	o := options{prefix: s.SubjectPrefix, maxPayload: defaultMaxPayload, maxPending: defaultMaxPending, timeout: defaultTimeout, ttl: s.MessageTTL}
	if s.MaxMessageBytes > 2*maxHeaderBytes {
		o.maxPayload = min(s.MaxMessageBytes, maxMaxPayload)
	}
	if s.MaxPending > 0 {
		o.maxPending = min(s.MaxPending, maxMaxPending)
	}
	if s.Timeout > 0 {
		o.timeout = s.Timeout
	}
	if s.CreateDestinations {
		o.streams = &s.Stream
	}
	if !validURL(s.URL.Reveal()) {
		return o, errURL
	}
	if err := checkPrefix(o.prefix); err != nil {
		return o, fmt.Errorf("nats: open: %w", err)
	}
	secured := s.TLSConfig
	if secured == nil && s.TLS != nil {
		var err error
		if secured, err = s.TLS.Config(); err != nil {
			return o, fmt.Errorf("nats: open: %w", err)
		}
	}
	if secured != nil {
		o.client = append(o.client, nats.Secure(secured))
	}
	if path := s.CredentialsFile; path != "" {
		file, err := os.Open(path) //nolint:gosec // the path is the caller's to choose
		if err != nil {
			return o, fmt.Errorf("nats: open: the credentials file: %w", err)
		}
		_ = file.Close()
		o.client = append(o.client, nats.UserCredentials(path))
	}
	o.client = append(o.client, s.Client...)
	settings := nats.GetDefaultOptions()
	for _, set := range o.client {
		if err := set(&settings); err != nil {
			return o, fmt.Errorf("nats: open: %w", err)
		}
	}
	return o, nil
}
