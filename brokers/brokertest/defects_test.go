package brokertest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

type publish func(ctx context.Context, msgs []brokers.Message) []brokers.Result

// A defect spoils what an honest broker is asked, or answers. The case of the suite must find it.
type defect struct {
	name, foundBy string
	spoil         func(next publish) publish
}

var defects = []defect{
	{"followers of a failed message are published", "HeadFails", func(next publish) publish {
		return func(ctx context.Context, msgs []brokers.Message) (all []brokers.Result) {
			for i := range msgs {
				all = append(all, next(ctx, msgs[i:i+1])...)
			}
			return all
		}
	}},
	{"a message of a large bulk is lost", "VeryLargeBulk", func(next publish) publish {
		return func(ctx context.Context, msgs []brokers.Message) []brokers.Result {
			end := min(len(msgs), 2_500)
			return append(next(ctx, msgs[:end]), make([]brokers.Result, len(msgs)-end)...)
		}
	}},
	{"two messages of a key change places", "Order", func(next publish) publish {
		return func(ctx context.Context, msgs []brokers.Message) []brokers.Result {
			if len(msgs) < 200 {
				return next(ctx, msgs)
			}
			msgs = slices.Clone(msgs)
			slices.Reverse(msgs[100:])
			results := next(ctx, msgs)
			slices.Reverse(results[100:])
			return results
		}
	}},
	{"a result is missing", "Bulk", answered(func(_ context.Context, results []brokers.Result) []brokers.Result { return results[:len(results)/2] })},
	{"success is claimed after the context ended", "ContextEndedBefore", answered(func(ctx context.Context, results []brokers.Result) []brokers.Result {
		if ctx.Err() != nil {
			clear(results)
		}
		return results
	})},
	{"a failure is shared with the whole bulk", "PartialFailure", answered(func(_ context.Context, results []brokers.Result) []brokers.Result {
		for _, result := range results {
			if class, _ := brokers.Classify(result.Err); class == brokers.ClassPermanent || class == brokers.ClassRetryable {
				return slices.Repeat([]brokers.Result{{Err: result.Err}}, len(results))
			}
		}
		return results
	})},
	{"payloads are taken for text", "TextAndBytes", changed(func(m *brokers.Message) { m.Payload = []byte(string([]rune(string(m.Payload)))) })},
	{"attributes are left out without a word", "OptionalFields", changed(func(m *brokers.Message) { m.Attributes = m.Attributes[:min(len(m.Attributes), 100)] })},
	{"messages are modified", "Bulk", changed(func(m *brokers.Message) { clear(m.Payload) })},
	{"large payloads are cut off", "VeryLargeBulk", changed(func(m *brokers.Message) { m.Payload = m.Payload[:min(len(m.Payload), 1<<16)] })},
	{"the deadline is not kept", "SlowServer", func(next publish) publish {
		return func(ctx context.Context, msgs []brokers.Message) []brokers.Result {
			return next(context.WithoutCancel(ctx), msgs)
		}
	}},
	{"slow is taken for broken", "Network/Latency", func(next publish) publish {
		return func(ctx context.Context, msgs []brokers.Message) []brokers.Result {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			return next(short, msgs)
		}
	}},
	{"an outage is the messages' fault", "Outage", unavailableIs(brokers.Retryable(errors.New("no answer")))},
	{"a broken connection is success", "Network/Reset", unavailableIs(nil)},
	{"a broken connection is the messages' fault", "Network/CutAnswer", unavailableIs(brokers.Retryable(errors.New("reset")))},
	{"a message without an answer was not sent", "Network/BlackHole", unavailableIs(brokers.ErrNotSent)},
	{"a bulk that was cut off goes again from its end", "Network/CutRequest", func(next publish) publish {
		return func(ctx context.Context, msgs []brokers.Message) []brokers.Result {
			results := next(ctx, msgs)
			if class, _ := brokers.Classify(results[0].Err); class == brokers.ClassUnavailable {
				again := slices.Clone(msgs)
				slices.Reverse(again)
				next(ctx, again)
			}
			return results
		}
	}},
}

// changed changes each message on its way.
func changed(change func(m *brokers.Message)) func(publish) publish {
	return func(next publish) publish {
		return func(ctx context.Context, msgs []brokers.Message) []brokers.Result {
			msgs = slices.Clone(msgs)
			for i := range msgs {
				change(&msgs[i])
			}
			return next(ctx, msgs)
		}
	}
}

// answered changes the results.
func answered(change func(ctx context.Context, results []brokers.Result) []brokers.Result) func(publish) publish {
	return func(next publish) publish {
		return func(ctx context.Context, msgs []brokers.Message) []brokers.Result {
			return change(ctx, next(ctx, msgs))
		}
	}
}

// unavailableIs gives each message of an outage another error.
func unavailableIs(err error) func(publish) publish {
	return answered(func(_ context.Context, results []brokers.Result) []brokers.Result {
		for i := range results {
			if class, _ := brokers.Classify(results[i].Err); class == brokers.ClassUnavailable {
				results[i].Err = err
			}
		}
		return results
	})
}
