package demo

import (
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// outage takes the partner's server down for a moment in the middle of the run.
type outage struct {
	servers *servers
	view    *view
	orders  int

	began, ended time.Time
}

// outageLength is how long the partner stays away, at least.
const outageLength = 1200 * time.Millisecond

// step begins and ends the outage when it is time.
func (o *outage) step(placed int, trading bool, counts []outbox.BrokerCounts) error {
	switch {
	case o.began.IsZero() && (placed >= (o.orders+2)/3 || !trading):
		o.servers.partnerDown()
		o.began = time.Now()
		o.view.sayf("The partner's server has closed its port. Its rows wait; the internal broker carries on.")
	case !o.began.IsZero() && o.ended.IsZero() && time.Since(o.began) >= outageLength:
		if err := o.servers.partnerUp(); err != nil {
			return err
		}
		o.ended = time.Now()
		o.view.sayf("The partner's server is back after %s; %d of its messages were waiting, %d of the internal broker's.",
			o.ended.Sub(o.began).Round(100*time.Millisecond), waiting(counts, "partner"), waiting(counts, "default"))
	}
	return nil
}

func (o *outage) over() bool { return !o.ended.IsZero() }

// end leaves no server down.
func (o *outage) end() { _ = o.servers.partnerUp() }

func waiting(counts []outbox.BrokerCounts, broker string) int64 {
	for _, entry := range counts {
		if entry.Broker == broker {
			return entry.Counts[outbox.StatusPending] + entry.Counts[outbox.StatusProcessing] + entry.Counts[outbox.StatusFailed]
		}
	}
	return 0
}
