package brokertest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// A defect spoils what an honest broker answers or is asked.
type defect struct {
	name    string
	foundBy []string
	publish func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result
}

var defects = []defect{
	{
		"followers of a failed message are published",
		[]string{"HeadFails", "HeadFailsForAnotherDestination"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) (all []brokers.Result) {
			for i := range msgs {
				all = append(all, next.Publish(ctx, msgs[i:i+1])...)
			}
			return all
		},
	},
	{
		"one message in a thousand is lost",
		[]string{"TenThousand"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) (all []brokers.Result) {
			if len(msgs) < 500 {
				return next.Publish(ctx, msgs)
			}
			all = append(all, next.Publish(ctx, msgs[:499])...)
			all = append(all, brokers.Result{})
			return append(all, next.Publish(ctx, msgs[500:])...)
		},
	},
	{
		"two messages of a key change places",
		[]string{"Order"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			if len(msgs) < 200 {
				return next.Publish(ctx, msgs)
			}
			msgs = slices.Clone(msgs)
			slices.Reverse(msgs[100:])
			results := next.Publish(ctx, msgs)
			slices.Reverse(results[100:])
			return results
		},
	},
	{
		"a result is missing",
		[]string{"Bulk"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			return next.Publish(ctx, msgs)[:len(msgs)/2]
		},
	},
	{
		"success is claimed after the context ended",
		[]string{"ContextEndedBefore", "ContextEndsMeanwhile"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			results := next.Publish(ctx, msgs)
			if ctx.Err() != nil {
				clear(results)
			}
			return results
		},
	},
	{
		"a failure is shared with the whole bulk",
		[]string{"PartialFailure", "Oversize"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			results := next.Publish(ctx, msgs)
			for i := range results {
				if class, _ := brokers.Classify(results[i].Err); class == brokers.ClassPermanent || class == brokers.ClassRetryable {
					return slices.Repeat([]brokers.Result{{Err: results[i].Err}}, len(msgs))
				}
			}
			return results
		},
	},
	{
		"an outage is the messages' fault",
		[]string{"Outage"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			results := next.Publish(ctx, msgs)
			for i := range results {
				if class, _ := brokers.Classify(results[i].Err); class == brokers.ClassUnavailable {
					results[i].Err = brokers.Retryable(errors.New("no answer"))
				}
			}
			return results
		},
	},
	{
		"payloads are taken for text",
		[]string{"TextAndBytes"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			msgs = slices.Clone(msgs)
			for i := range msgs {
				msgs[i].Payload = []byte(string([]rune(string(msgs[i].Payload))))
			}
			return next.Publish(ctx, msgs)
		},
	},
	{
		"of many attributes the first are left out",
		[]string{"Signature"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			const most = 100
			msgs = slices.Clone(msgs)
			omitted := make([][]string, len(msgs))
			for i := range msgs {
				beyond := max(len(msgs[i].Attributes)-most, 0)
				for _, a := range msgs[i].Attributes[:beyond] {
					omitted[i] = append(omitted[i], a.Name)
				}
				msgs[i].Attributes = msgs[i].Attributes[beyond:]
			}
			results := next.Publish(ctx, msgs)
			for i := range results {
				results[i].Omitted = omitted[i]
			}
			return results
		},
	},
	{
		"messages are modified",
		[]string{"Bulk"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			defer func() {
				for i := range msgs {
					clear(msgs[i].Payload)
				}
			}()
			return next.Publish(ctx, msgs)
		},
	},
	{
		"a bulk ends after ten thousand messages",
		[]string{"VeryLargeBulk"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			end := min(len(msgs), 10_000)
			return append(next.Publish(ctx, msgs[:end]), make([]brokers.Result, len(msgs)-end)...)
		},
	},
	{
		"large payloads are cut off",
		[]string{"VeryLargeBulk", "TextAndBytes"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			msgs = slices.Clone(msgs)
			for i := range msgs {
				msgs[i].Payload = msgs[i].Payload[:min(len(msgs[i].Payload), 1<<16)]
			}
			return next.Publish(ctx, msgs)
		},
	},
	{
		"the deadline is not kept",
		[]string{"SlowServer"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			return next.Publish(context.WithoutCancel(ctx), msgs)
		},
	},
	{
		"slow is taken for broken",
		[]string{"SlowServer", "Network/Latency"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			return next.Publish(short, msgs)
		},
	},
	{
		"a broken connection is success",
		[]string{"Network/Reset", "Network/CutRequest"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			return replaced(next.Publish(ctx, msgs), nil)
		},
	},
	{
		"a broken connection is the messages' fault",
		[]string{"Network/Reset", "Network/CutAnswer"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			return replaced(next.Publish(ctx, msgs), brokers.Retryable(errors.New("reset")))
		},
	},
	{
		"what has no answer was not sent",
		[]string{"Network/CutAnswer", "Network/BlackHole"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			return replaced(next.Publish(ctx, msgs), brokers.ErrNotSent)
		},
	},
	{
		"what was cut off goes again from its end",
		[]string{"Network/CutRequest"},
		func(next brokers.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			results := next.Publish(ctx, msgs)
			if class, _ := brokers.Classify(results[0].Err); class == brokers.ClassUnavailable {
				again := slices.Clone(msgs)
				slices.Reverse(again)
				next.Publish(ctx, again)
			}
			return results
		},
	},
}

// replaced gives each message of an outage another error.
func replaced(results []brokers.Result, err error) []brokers.Result {
	for i := range results {
		if class, _ := brokers.Classify(results[i].Err); class == brokers.ClassUnavailable {
			results[i].Err = err
		}
	}
	return results
}
