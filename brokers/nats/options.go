package nats

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// options of a broker, changed by [Option].
type options struct {
	prefix     string
	maxPayload int
	maxPending int
	timeout    time.Duration   // of an acknowledgment
	streams    *StreamSettings // nil = missing streams are not created
	client     []nats.Option
}

func defaults() options {
	return options{maxPayload: defaultMaxPayload, maxPending: defaultMaxPending, timeout: defaultTimeout}
}

// An Option changes a broker. Options that have no sensible meaning (a negative size) count as not
// given.
type Option func(*options)

// WithSubjectPrefix begins every subject with prefix, such as "events.". It may contain ASCII
// letters, digits, "-", "_" and single dots, and have 120 bytes; [Open] checks it. Default: none.
func WithSubjectPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithMaxPayload tells the broker about max_payload of the servers, in bytes: 1 MiB by default, as
// theirs, at most 64 MiB. Payloads larger than it less 32 KiB, which are for headers, fail for
// good. The server's own limit is checked as well.
func WithMaxPayload(n int) Option {
	return func(o *options) {
		if n > 2*maxHeaderBytes {
			o.maxPayload = min(n, maxMaxPayload)
		}
	}
}

// WithMaxPending bounds the messages that wait for their acknowledgment, over all calls of Publish
// together; default 2,000, at most 20,000. Those of one call have 8 MiB besides.
func WithMaxPending(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.maxPending = min(n, maxMaxPending)
		}
	}
}

// WithTimeout bounds how long a message waits for its acknowledgment, within the context of the
// call. Default 10 s. One that was not acknowledged by then may have been stored; the servers count
// as out.
func WithTimeout(d time.Duration) Option {
	return func(o *options) {
		if d > 0 {
			o.timeout = d
		}
	}
}

// StreamSettings are the settings of streams that a broker creates. The zero value is a stream on
// disk, without replicas, that keeps everything.
type StreamSettings struct {
	// Replicas is the number of servers that hold the stream, 1 to 5; 0 = 1.
	Replicas int
	// MaxAge, MaxBytes and MaxMessages bound the stream; the oldest messages go. 0 = no bound.
	MaxAge      time.Duration
	MaxBytes    int64
	MaxMessages int64
	// Duplicates is how long the server remembers message ids; 0 = two minutes, the server's
	// default.
	Duplicates time.Duration
	// Memory keeps the stream in memory: a restart of the server loses it.
	Memory bool
}

func (s *StreamSettings) config(subject string) jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name: streamName(subject), Subjects: []string{subject}, Replicas: s.Replicas, MaxAge: s.MaxAge, MaxBytes: s.MaxBytes,
		MaxMsgs: s.MaxMessages, Duplicates: s.Duplicates, Description: "created by Fanout for the subject of a destination",
	}
	if s.Memory {
		config.Storage = jetstream.MemoryStorage
	}
	return config
}

// WithCreateStreams creates a stream for a subject that no stream takes, when the first message is
// refused for that reason. The stream takes this subject alone; its name is the subject with "+" for
// ".". Several processes may create it at the same time. The user needs to publish to
// $JS.API.STREAM.CREATE.*. Default: a missing stream makes the destination unavailable.
func WithCreateStreams(settings StreamSettings) Option {
	return func(o *options) { o.streams = &settings }
}

// WithTLS makes connections use TLS with a certificate authority of one's own (RootCAs), or a
// client certificate (Certificates). The configuration must not be changed afterwards. URLs that
// begin with tls:// use TLS without it.
func WithTLS(config *tls.Config) Option { return withClient(nats.Secure(config)) }

// WithToken authenticates by a token.
func WithToken(token string) Option { return withClient(nats.Token(token)) }

// WithUser authenticates by user and password, instead of those in the URL.
func WithUser(user, password string) Option { return withClient(nats.UserInfo(user, password)) }

// WithCredentialsFile authenticates by a file with a JWT and the seed of its user. The file is read
// at each connection, so a renewed one is found; [Open] wants it to be there.
func WithCredentialsFile(path string) Option {
	return withClient(func(settings *nats.Options) error {
		file, err := os.Open(path) //nolint:gosec // the path is the caller's to choose
		if err != nil {
			return fmt.Errorf("the credentials file: %w", err)
		}
		_ = file.Close()
		return nats.UserCredentials(path)(settings)
	})
}

// WithNKeySeedFile authenticates by a file that holds the seed of an nkey user. The file is read by
// [Open].
func WithNKeySeedFile(path string) Option {
	return withClient(func(settings *nats.Options) error {
		set, err := nats.NkeyOptionFromSeed(path)
		if err != nil {
			return err
		}
		return set(settings)
	})
}

// WithConnectionName is how the server's monitoring names the connections; default "fanout".
func WithConnectionName(name string) Option { return withClient(nats.Name(name)) }

func withClient(set nats.Option) Option {
	return func(o *options) { o.client = append(o.client, set) }
}
