package outbox

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// publish calls the broker within the publish timeout. Where its implementation breaks down it is asked again message by
// message, so that only those at which it does so are to blame; and not even they where it does so with every message: then
// it counts as an outage.
func (d *delivery) publish(ctx context.Context, outgoing []brokers.Message) []brokers.Result {
	ctx, cancel := context.WithTimeout(ctx, d.policy.PublishTimeout)
	defer cancel()
	results, broken := d.ask(ctx, outgoing)
	if broken == nil {
		return results
	}
	d.log.ErrorContext(ctx, "the broker's implementation broke down", "messages", len(outgoing), "error", broken, "stack", broken.stack)
	if len(outgoing) == 1 {
		return []brokers.Result{{Err: brokers.Unavailable(brokers.ScopeBroker, broken)}}
	}
	results = make([]brokers.Result, len(outgoing))
	works, failed, culprits := d.reached, map[string]bool{}, map[int]error{}
	for i := range outgoing {
		key := outgoing[i].OrderingKey
		if failed[key] || ctx.Err() != nil || d.lease.over() {
			results[i].Err = brokers.ErrNotSent
			continue
		}
		one, broken := d.ask(ctx, outgoing[i:i+1])
		if broken != nil {
			culprits[i] = broken
			one = []brokers.Result{{Err: brokers.Unavailable(brokers.ScopeBroker, broken)}}
		}
		results[i] = one[0]
		class, scope := brokers.Classify(one[0].Err)
		works = works || class != brokers.ClassNotSent && scope != brokers.ScopeBroker
		failed[key] = key != "" && one[0].Err != nil
	}
	if works {
		for i, broken := range culprits {
			results[i].Err = brokers.Retryable(broken)
		}
	}
	return results
}

// breakdown is how a broker's implementation does not do what a broker must.
type breakdown struct{ what, stack string }

func (b *breakdown) Error() string { return "the broker's implementation " + b.what }

func (d *delivery) ask(ctx context.Context, outgoing []brokers.Message) (results []brokers.Result, broken *breakdown) {
	defer func() {
		if r := recover(); r != nil {
			broken = &breakdown{what: fmt.Sprintf("panicked: %v", r), stack: string(debug.Stack())}
		}
	}()
	results = d.target.Publish(ctx, outgoing)
	if len(results) != len(outgoing) {
		return nil, &breakdown{what: fmt.Sprintf("broke its contract: %d results for %d messages", len(results), len(outgoing))}
	}
	return results, nil
}

// excuse makes unsent of what failed because we stopped waiting, at the end of a shutdown or of the lease: neither the message
// nor the broker is to blame. Should it have arrived all the same, it is sent again under the same id.
func excuse(results []brokers.Result) {
	for i := range results {
		switch class, _ := brokers.Classify(results[i].Err); class {
		case brokers.ClassRetryable, brokers.ClassUnavailable:
			results[i].Err = brokers.NotSentBecause(results[i].Err)
		default:
		}
	}
}

// omittedEvery bounds how often a processor tells of attributes that were left out: whoever sends such ones does so with each message.
const omittedEvery = time.Minute

// tellOmitted says which attributes the broker has left out, by the example of one message.
func (w *worker) tellOmitted(chunk []*Message, results []brokers.Result) {
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
	now, last := time.Now().UnixNano(), w.omitted.Load()
	if number == 0 || now-last < int64(omittedEvery) || !w.omitted.CompareAndSwap(last, now) {
		return
	}
	const most, length = 5, 40 // of what may be a thousand names, of a kilobyte each
	all := results[first].Omitted
	names := make([]string, min(len(all), most))
	for i := range names {
		names[i] = fmt.Sprintf("%.*s", length, strings.ToValidUTF8(all[i], "\uFFFD"))
	}
	w.log.Warn("delivered without attributes that the broker does not take", "messages", number, "message_id", chunk[first].MessageID,
		"attributes", names, "omitted", len(all))
}
