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
	opts, err := optionsOf(cfg)
	if err != nil {
		return nil, err
	}
	b, err := Open(cfg.URL.Reveal(), opts...)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// CheckConfig returns the error that [FromConfig] would return, without connecting to a server. For
// other brokers FromConfig does that itself.
func CheckConfig(cfg config.Broker) error {
	opts, err := optionsOf(cfg)
	if err != nil {
		return err
	}
	_, err = prepare(cfg.URL.Reveal(), opts)
	return err
}

func optionsOf(cfg config.Broker) ([]Option, error) {
	secured, err := cfg.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("nats: open: %w", err)
	}
	if n := cfg.MaxMessageBytes; n > 0 && (n <= 2*maxHeaderBytes || n > maxMaxPayload) {
		return nil, fmt.Errorf("nats: open: max_message_bytes is %d: use the servers' max_payload, above %d, of which half is for headers, and at most %d",
			n, 2*maxHeaderBytes, maxMaxPayload)
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
	return opts, nil
}
