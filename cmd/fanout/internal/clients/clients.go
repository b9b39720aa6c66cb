// Package clients links the clients of brokers that are in modules of their own: all of them, since
// the command opens whatever type a configuration may name.
package clients

import (
	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/config"
)

// Options are what fanout.Open and fanout.OpenBroker need to open every type of
// config.BrokerTypes.
func Options() []fanout.Option {
	return []fanout.Option{
		fanout.WithBrokerType(config.TypePubSub, gcppubsub.FromConfig),
	}
}
