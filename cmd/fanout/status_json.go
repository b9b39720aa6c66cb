package main

import (
	"time"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/api"
)

// wireBroker is one broker of one database. Its rates are known from the second sample on.
type wireBroker struct {
	api.Broker

	MorePublishedPerSecond  bool     `json:"more_published_per_second,omitempty"`
	Unavailable             bool     `json:"unavailable"`
	UnavailableDestinations []string `json:"unavailable_destinations"`
}

func toStatus(status map[string]monitor.DatabaseStatus, rated map[spot]rates) map[string]api.Database[wireBroker] {
	answer := make(map[string]api.Database[wireBroker], len(status))
	for name, database := range status {
		if database.Err != nil {
			answer[name] = api.Database[wireBroker]{Status: "error", Error: database.Err.Error()}
			continue
		}
		line := api.NewDatabase[wireBroker](database.Counts)
		line.SilentRelays = database.Silent(time.Now())
		line.Relays = len(database.Relays) - line.SilentRelays
		for i := range database.Brokers {
			b := &database.Brokers[i]
			broker := wireBroker{
				Broker:      api.NewBroker(&b.BrokerOverview, b.Paused, stray(b)),
				Unavailable: b.Unavailable, UnavailableDestinations: append([]string{}, b.UnavailableDestinations...),
			}
			broker.NotKept = b.NotKept
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
