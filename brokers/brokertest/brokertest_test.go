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

// defectVariable names the defect that [TestDefective] has when the process is a child of
// [TestSuiteFindsDefects].
const defectVariable = "FANOUT_BROKERTEST_DEFECT"

type defective struct {
	brokers.Broker

	publish publish
}

func (d defective) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	return d.publish(ctx, msgs)
}

// TestDefective runs the suite over a broker with one defect. TestSuiteFindsDefects runs it, and expects it
// to fail.
func TestDefective(t *testing.T) {
	named := func(d defect) bool { return d.name == os.Getenv(defectVariable) }
	at := slices.IndexFunc(defects, named)
	if at < 0 {
		t.Skip("only as a child of TestSuiteFindsDefects")
	}
	brokertest.Run(t, model(func(b brokers.Broker) brokers.Broker { return defective{b, defects[at].spoil(b.Publish)} }))
}

// TestModel runs the suite over the same broker without a defect, the one of package memory.
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

// A suite that every broker passes proves nothing.
func TestSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			pattern := "^TestDefective$/^" + strings.ReplaceAll(d.foundBy, "/", "$/^") + "$"
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern, "-test.v")
			child.Env = append(os.Environ(), defectVariable+"="+d.name)
			output, err := child.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s has to fail:\n%s", d.foundBy, output)
			assert.Contains(t, string(output), "--- FAIL: TestDefective/"+d.foundBy, "%s", output)
		})
	}
}
