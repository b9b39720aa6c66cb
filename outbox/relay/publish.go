package relay

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// publish makes the call, signed where the broker has keys, and tells who observes. Its results are what the broker has answered, but
// that what failed because we stopped waiting was not sent.
func (d *delivery) publish(sending context.Context) {
	if d.p.sign != nil {
		for i := range d.call.Outgoing {
			d.p.sign.Sign(&d.call.Outgoing[i], d.call.Began)
		}
	}
	watched := sending
	if d.p.observer != nil {
		watched = d.p.observer.Publishing(sending, &d.call)
	}
	results := d.results(watched)
	took := time.Since(d.call.Began)
	if sending.Err() != nil {
		excuse(results)
	}
	d.call.Results, d.call.Took = results, took
	if d.p.observer != nil {
		d.p.observer.Published(watched, &d.call)
	}
}

// results calls the broker within the publish timeout. Where its implementation breaks down it is
// asked again message by message.
func (d *delivery) results(ctx context.Context) []brokers.Result {
	ctx, cancel := context.WithTimeout(ctx, d.p.policy.PublishTimeout)
	defer cancel()
	outgoing := d.call.Outgoing
	results, broken := ask(ctx, d.p.target, outgoing)
	if broken == nil {
		return results
	}
	if d.p.broken.now() {
		d.p.log.ErrorContext(ctx, "broker implementation failed", "messages", len(outgoing), "error", broken, "stack", broken.stack)
	}
	if len(outgoing) == 1 {
		return []brokers.Result{{Err: broken}}
	}
	results = make([]brokers.Result, len(outgoing))
	failed := map[string]bool{}
	for i := range outgoing {
		key := outgoing[i].OrderingKey
		if failed[key] || ctx.Err() != nil || d.lease.over() {
			results[i].Err = brokers.ErrNotSent
			continue
		}
		one, broken := ask(ctx, d.p.target, outgoing[i:i+1])
		if broken != nil {
			one = []brokers.Result{{Err: broken}}
		}
		results[i] = one[0]
		failed[key] = key != "" && one[0].Err != nil
	}
	return results
}

// ask calls the broker. broken says that its implementation panicked or broke its contract.
func ask(ctx context.Context, broker brokers.Broker, outgoing []brokers.Message) (results []brokers.Result, broken *breakdown) {
	defer func() {
		if r := recover(); r != nil {
			broken = &breakdown{what: fmt.Sprintf("panicked: %v", r), stack: string(debug.Stack())}
		}
	}()
	results = broker.Publish(ctx, outgoing)
	if len(results) != len(outgoing) {
		return nil, &breakdown{what: fmt.Sprintf("broke its contract: %d results for %d messages", len(results), len(outgoing))}
	}
	return results, nil
}

// tellOmitted says which attributes the broker has left out of the last call, by the example of one
// message.
func (d *delivery) tellOmitted() {
	results := d.call.Results
	number, first := 0, 0
	for i := range results {
		if results[i].Err != nil || len(results[i].Omitted) == 0 {
			continue
		}
		if number == 0 {
			first = i
		}
		number++
	}
	if number == 0 || !d.p.omitted.now() {
		return
	}
	const most, length = 5, 40 // of what may be a thousand names, of a kilobyte each
	all := results[first].Omitted
	names := make([]string, min(len(all), most))
	for i := range names {
		names[i] = fmt.Sprintf("%.*s", length, strings.ToValidUTF8(all[i], "\uFFFD"))
	}
	d.p.log.Warn("attributes omitted", "messages", number, "message_id", d.call.Messages[first].MessageID,
		"attributes", names, "omitted", len(all))
}
