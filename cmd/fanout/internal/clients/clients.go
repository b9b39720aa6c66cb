// Package clients links the adapters of brokers that are in modules of their own: all of them, since
// the command opens whatever a configuration may name.
package clients

import (
	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/nats"
)

// Types are all types of brokers. This is the list that a new one is added to.
func Types() []adapter.Type {
	return append(fanout.BrokerTypes(), gcppubsub.Type(), nats.Type(), kafka.Type())
}

// Options are what package fanout needs to open a broker of every type.
func Options() (opts []fanout.Option) {
	for _, kind := range Types() {
		opts = append(opts, fanout.WithBrokerType(kind))
	}
	return opts
}

// Names are those of the types.
func Names() (names []string) {
	for _, kind := range Types() {
		names = append(names, kind.Name)
	}
	return names
}
