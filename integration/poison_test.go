package integration_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

const deliveredVariable = "FANOUT_TEST_CHILD_DELIVERED"

// poisoned is a broker whose client refuses one message permanently, panics at another, and dies of a
// third one, and its process with it. What it delivers it writes into a file.
type poisoned struct {
	confirming

	file *os.File
}

func newPoisoned() (brokers.Broker, outbox.Policy, error) {
	file, err := os.OpenFile(os.Getenv(deliveredVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	policy := shortLease()
	policy.Lease = 30 * time.Second // it ends when the test says so, however slow the machine is
	policy.Retry = outbox.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: 500 * time.Millisecond}
	return &poisoned{file: file}, policy, err
}

func (p *poisoned) Publish(_ context.Context, msgs []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(msgs))
	for i, m := range msgs {
		switch string(m.Payload) {
		case "refused":
			results[i].Err = brokers.Permanent(errors.New("nobody will ever take this"))
			continue
		case "panic":
			panic("a bug in the broker's client")
		case "poison":
			<-time.After(100 * time.Millisecond)
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			select {}
		}
		_, _ = p.file.WriteString(m.ID + "\n")
	}
	return results
}

// outbreak is a table with a message that kills its relay.
type outbreak struct {
	*place

	delivered string
	expects   []string // in errors that a relay may log
	meanwhile func()   // happens again and again until all rows are finished
}

func newOutbreak(p *place) *outbreak {
	p.Helper()
	p.migrate()
	return &outbreak{place: p, delivered: filepath.Join(p.TempDir(), "delivered")}
}

// insert writes rows without a key into one shard; payload is that of the row at a place, all
// others have none.
func (o *outbreak) insert(shard, n, place int, payload string) {
	o.Helper()
	rows := make([]outbox.Row, 0, n)
	for len(rows) < n {
		row := outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T"}
		if o.driver.Shard(&row) != shard {
			continue
		}
		if len(rows) == place {
			row.Payload = []byte(payload)
		}
		rows = append(rows, row)
	}
	o.write(rows...)
}

// survive starts a relay after each that has died, until all rows are finished, and returns how
// many have died.
func (o *outbreak) survive() (crashes int) {
	o.Helper()
	for ; ; crashes++ {
		require.Less(o, crashes, 40, "it goes on forever")
		relay := startChild(o.place, "poison", deliveredVariable+"="+o.delivered)
		died := make(chan error, 1)
		go func() { died <- relay.cmd.Wait() }()
		if !o.outlives(died) {
			for _, line := range relay.complaints() {
				require.True(o, slices.ContainsFunc(o.expects, func(text string) bool { return strings.Contains(line, text) }), line)
			}
			o.expire()
			continue
		}
		require.NoError(o, relay.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(o, <-died, relay.log.String())
		return crashes
	}
}

// outlives reports whether a relay has finished all rows before it died.
func (o *outbreak) outlives(died <-chan error) bool {
	o.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); ; {
		select {
		case <-died:
			return false
		case <-ticker.C:
		}
		if o.count("finished_at IS NULL") == 0 {
			return true
		}
		if o.meanwhile != nil {
			o.meanwhile()
		}
		require.True(o, time.Now().Before(deadline), "not finished within a minute")
	}
}
