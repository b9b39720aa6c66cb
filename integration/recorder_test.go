package integration_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// Arguments of a recorder.
const (
	recordVariable = "FANOUT_TEST_CHILD_RECORD"
	habitVariable  = "FANOUT_TEST_CHILD_HABIT"
)

// Habits of a recorder.
const (
	diesAfterSending = "dies after sending" // the broker has it all, and the process has no time to say so
	takesItsTime     = "takes its time"     // each call takes a second, whatever becomes of its context
)

// begun is the line that a recorder writes when a call is in progress.
const begun = "begun"

// recorder is a broker that writes down what it is given. One call is one send: what it has begun
// cannot be taken back.
type recorder struct {
	confirming

	file  *os.File
	habit string
}

func newRecorder() (brokers.Broker, outbox.Policy, error) {
	file, err := os.OpenFile(os.Getenv(recordVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &recorder{file: file, habit: os.Getenv(habitVariable)}, shortLease(), err
}

func (r *recorder) Publish(_ context.Context, msgs []brokers.Message) []brokers.Result {
	r.line(begun)
	if r.habit == takesItsTime {
		<-time.After(time.Second)
	}
	for _, m := range msgs {
		r.line(m.ID)
	}
	if r.habit == diesAfterSending {
		die()
	}
	return make([]brokers.Result, len(msgs))
}

func (r *recorder) line(text string) { _, _ = r.file.WriteString(text + "\n") }

// die ends this process at this very moment.
func die() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}

// record is what a recorder has written.
type record struct {
	*testing.T

	path string
}

func newRecord(t *testing.T, name string) *record {
	t.Helper()
	return &record{t, filepath.Join(t.TempDir(), name)}
}

// start starts a relay with a recorder.
func (r *record) start(at *place, habit string) *process {
	r.Helper()
	return startChild(at, "recorder", recordVariable+"="+r.path, habitVariable+"="+habit, talksVariable+"=yes")
}

// read returns how many calls have begun, and the ids that were sent.
func (r *record) read() (calls int, ids []string) {
	r.Helper()
	text, err := os.ReadFile(r.path)
	if !os.IsNotExist(err) {
		require.NoError(r, err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == begun {
			calls++
		} else {
			ids = append(ids, line)
		}
	}
	return calls, ids
}

// distinct are the ids without repetition, sorted.
func distinct(ids []string) []string { return slices.Compact(slices.Sorted(slices.Values(ids))) }
