package main

import (
	"github.com/gorm-fanout/fanout/internal/wire"
	"github.com/gorm-fanout/fanout/monitor"
)

// wireBroker is one broker of one database. Its rates are known from the second sample on.
type wireBroker struct {
	wire.Broker

	MorePublishedPerSecond bool `json:"more_published_per_second,omitempty"`
}

func toStatus(status map[string]monitor.DatabaseStatus, rated map[spot]rates) map[string]wire.Database[wireBroker] {
	answer := make(map[string]wire.Database[wireBroker], len(status))
	for name, database := range status {
		if database.Err != nil {
			answer[name] = wire.Database[wireBroker]{Status: "error", Error: database.Err.Error()}
			continue
		}
		line := wire.NewDatabase[wireBroker](database.Counts)
		for i := range database.Brokers {
			b := &database.Brokers[i]
			broker := wireBroker{Broker: wire.NewBroker(&b.BrokerOverview, b.Paused, stray(b))}
			if r, ok := rated[spot{name, b.Broker}]; ok {
				broker.PublishedPerSecond, broker.MorePublishedPerSecond = &r.Published, r.AtLeast
				if r.Known {
					broker.RetryRate = &r.Retry
				}
			}
			line.Brokers[b.Broker] = broker
		}
		answer[name] = line
	}
	return answer
}
