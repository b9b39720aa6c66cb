package nats

import (
	"context"
	"fmt"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/config"
)

// FromConfig opens a broker of type nats with the settings of a configuration, as [Open] does. A
// relay is given it as
//
//	fanout.WithBrokerType(config.TypeNATS, nats.FromConfig)
func FromConfig(_ context.Context, _ string, cfg config.Broker) (brokers.Broker, error) {
	secured, err := cfg.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("nats: open: %w", err)
	}
	if n := cfg.MaxMessageBytes; n > 0 && n <= 2*maxHeaderBytes {
		return nil, fmt.Errorf("nats: open: max_message_bytes is %d: the servers' max_payload has to be above %d, of which half is for headers", n, 2*maxHeaderBytes)
	}
	opts := []Option{WithSubjectPrefix(cfg.NATS.SubjectPrefix), WithMaxPayload(cfg.MaxMessageBytes)}
	if secured != nil {
		opts = append(opts, WithTLS(secured))
	}
	if cfg.NATS.CredentialsFile != "" {
		opts = append(opts, WithCredentialsFile(cfg.NATS.CredentialsFile))
	}
	if cfg.CreateDestinations {
		stream := cfg.NATS.Stream
		opts = append(opts, WithCreateStreams(StreamSettings{Replicas: stream.Replicas, MaxAge: stream.MaxAge, Duplicates: stream.DuplicateWindow}))
	}
	b, err := Open(cfg.URL.Reveal(), opts...)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}
