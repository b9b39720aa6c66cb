package brokertest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// defectVariable names the defect that [TestDefective] has when the process is a child of [TestSuiteFindsDefects].
const defectVariable = "FANOUT_BROKERTEST_DEFECT"

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
					results[i].Err = errors.New("no answer")
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

type defective struct {
	brokers.Broker

	defect defect
}

func (b defective) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	return b.defect.publish(b.Broker, ctx, msgs)
}

// TestDefective runs the suite over a broker with one defect. It is run, and expected to fail, by TestSuiteFindsDefects.
func TestDefective(t *testing.T) {
	named := func(d defect) bool { return d.name == os.Getenv(defectVariable) }
	at := slices.IndexFunc(defects, named)
	if at < 0 {
		t.Skip("only as a child of TestSuiteFindsDefects")
	}
	brokertest.Run(t, model(func(b brokers.Broker) brokers.Broker { return defective{b, defects[at]} }))
}

// TestModel runs the suite over the same broker without a defect.
func TestModel(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, model(func(b brokers.Broker) brokers.Broker { return b }))
}

// model is a harness of brokers in memory, some of them behind a wire; wrap may spoil each.
func model(wrap func(brokers.Broker) brokers.Broker) brokertest.Harness {
	var (
		mu      sync.Mutex
		opened  []*memory.Broker
		refused = map[string]bool{}
		names   int
	)
	each := func(do func(*memory.Broker)) {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range opened {
			do(b)
		}
	}
	create := func() *memory.Broker {
		b := memory.New(memory.WithMaxMessageBytes(1 << 20))
		b.Fail = func(m brokers.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if refused[m.ID] {
				return errors.New("refused")
			}
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		opened = append(opened, b)
		return b
	}
	line := &wire{}
	return brokertest.Harness{
		Open:               func(*testing.T) brokers.Broker { return wrap(create()) },
		OpenThroughNetwork: func(*testing.T) brokers.Broker { return wrap(wired{create(), line}) },
		Network:            line,
		Destination: func(*testing.T) string {
			names++
			return fmt.Sprint("brokertest::", names)
		},
		Received: func(_ *testing.T, destination string) (all []brokers.Message) {
			each(func(b *memory.Broker) { all = append(all, b.Messages(destination)...) })
			return all
		},
		Refuse: func(_ *testing.T, id string) func() {
			set := func(to bool) {
				mu.Lock()
				defer mu.Unlock()
				refused[id] = to
			}
			set(true)
			return func() { set(false) }
		},
		Stop:  func(*testing.T) { each(func(b *memory.Broker) { b.Outage(errors.New("down")) }) },
		Start: func(*testing.T) { each(func(b *memory.Broker) { b.Outage(nil) }) },

		Patience: 4 * time.Second,
	}
}

// TestSuiteFindsDefects: a suite that everybody passes proves nothing.
func TestSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range d.foundBy {
				pattern := "^TestDefective$/^" + strings.ReplaceAll(name, "/", "$/^") + "$"
				child := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern, "-test.v")
				child.Env = append(os.Environ(), defectVariable+"="+d.name)
				output, err := child.CombinedOutput()
				var exit *exec.ExitError
				require.ErrorAs(t, err, &exit, "%s has to fail:\n%s", name, output)
				assert.Contains(t, string(output), "--- FAIL: TestDefective/"+name, "%s", output)
			}
		})
	}
}
