package gcppubsub

import (
	"context"
	"net"
	"strings"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/config"
)

// FromConfig opens a broker of type pubsub with the settings of a configuration, as [Open] does. A
// relay is given it as
//
//	fanout.WithBrokerType(config.TypePubSub, gcppubsub.FromConfig)
func FromConfig(ctx context.Context, _ string, cfg config.Broker) (brokers.Broker, error) {
	opts := append(endpoint(cfg.Endpoint), WithCompression(cfg.Compression))
	if cfg.CreateDestinations {
		opts = append(opts, WithCreateTopics())
	}
	b, err := Open(ctx, cfg.Project, opts...)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// endpoint tells Google's own endpoints, such as the regional ones, and those that a company has of
// its own (at the port of HTTPS) from emulators, which have neither TLS nor credentials.
func endpoint(address string) []Option {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	switch {
	case address == "":
		return nil
	case strings.HasSuffix(host, ".googleapis.com"), port == "443":
		return []Option{WithEndpoint(address)}
	default:
		return []Option{WithEmulator(address)}
	}
}
