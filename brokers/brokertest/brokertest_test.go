package brokertest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
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
	publish func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result
}

var defects = []defect{
	{
		"followers of a failed message are published",
		[]string{"HeadFails", "HeadFailsForAnotherDestination"},
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) (all []brokers.Result) {
			for i := range msgs {
				all = append(all, next.Publish(ctx, msgs[i:i+1])...)
			}
			return all
		},
	},
	{
		"one message in a thousand is lost",
		[]string{"TenThousand"},
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) (all []brokers.Result) {
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
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
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
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			return next.Publish(ctx, msgs)[:len(msgs)/2]
		},
	},
	{
		"success is claimed after the context ended",
		[]string{"ContextEndedBefore", "ContextEndsMeanwhile"},
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
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
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
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
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
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
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
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
		func(next *memory.Broker, ctx context.Context, msgs []brokers.Message) []brokers.Result {
			defer func() {
				for i := range msgs {
					clear(msgs[i].Payload)
				}
			}()
			return next.Publish(ctx, msgs)
		},
	},
}

type defective struct {
	*memory.Broker

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
	brokertest.Run(t, brokertest.Harness{
		Open: func(*testing.T) brokers.Broker {
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
			return defective{b, defects[at]}
		},
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

		Patience: 2 * time.Second,
	})
}

// TestSuiteFindsDefects: a suite that everybody passes proves nothing.
func TestSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range d.foundBy {
				child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDefective$/^"+name+"$", "-test.v")
				child.Env = append(os.Environ(), defectVariable+"="+d.name)
				output, err := child.CombinedOutput()
				var exit *exec.ExitError
				require.ErrorAs(t, err, &exit, "%s has to fail:\n%s", name, output)
				assert.Contains(t, string(output), "--- FAIL: TestDefective/"+name, "%s", output)
			}
		})
	}
}
