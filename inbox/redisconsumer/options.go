package redisconsumer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// The defaults of a consumer.
const (
	DefaultWorkers         = session.DefaultWorkers
	DefaultPrefetch        = 256
	DefaultPrefetchBytes   = 64 << 20
	DefaultClaimAfter      = time.Minute
	DefaultBlock           = time.Second
	DefaultShutdownTimeout = session.DefaultShutdownTimeout
)

const (
	leastClaimAfter = 100 * time.Millisecond
	leastBlock      = time.Millisecond
	mostBlock       = time.Minute
	// renewals within the time after which an entry may be taken over: one may fail.
	renewals = 3
)

// options of a consumer, changed by [Option].
type options struct {
	session.Options

	source        func(stream string) string
	name          string
	named         bool // by the caller: an earlier process may have had it
	prefetch      int
	prefetchBytes int
	claimAfter    time.Duration
	block         time.Duration
	dead          func(stream string) string
	fromNow       bool
	noBackfill    bool
}

func defaults() options {
	return options{
		Options: session.Defaults("redisconsumer"), name: uniqueName(), prefetch: DefaultPrefetch, prefetchBytes: DefaultPrefetchBytes,
		claimAfter: DefaultClaimAfter, block: DefaultBlock, source: func(stream string) string { return stream },
	}
}

// An Option changes a consumer. What makes no sense is reported by [NewConsumer].
type Option func(*options)

// WithConsumer sets whose effect happens once: [inbox.Message.Consumer], by which inboxes tell
// messages apart. Default: the name of the group.
func WithConsumer(name string) Option { return func(o *options) { o.Consumer = name } }

// WithSource gives the streams names of their own as sources of messages, [inbox.Message.Source],
// by which inboxes tell messages apart: those of different sources are never copies of each other.
// Default: the name of the stream. Streams that can hold copies of the same messages, as where one
// is replaced by another, need the same source; one that another party may write to, such as a
// partner, needs a source of its own.
func WithSource(name func(stream string) string) Option {
	return func(o *options) { o.source = name }
}

// WithName names this member of the group. No two that run may have the same name: they would
// take each other's messages. Default: host name, process id and a random part.
//
// A process that comes back under its old name gets at once what it had claimed when it died,
// instead of after [WithClaimAfter].
func WithName(name string) Option {
	return func(o *options) { o.name, o.named = name, true }
}

// WithWorkers sets how many messages are handled at once, over all streams. Default 10.
func WithWorkers(n int) Option { return func(o *options) { o.Workers = n } }

// WithPrefetch bounds the entries that are claimed, for each stream: being handled, waiting for
// their turn or their next attempt, not yet acknowledged. It bounds the memory. Default 256, at
// least 1.
//
// Messages that wait behind a failing one of their key count, too. Where they fill the prefetch
// while workers are idle, they are unloaded: they stay pending for this consumer, and keep their
// order, but their payloads are dropped and fetched again when it is their turn. So other keys are
// read on. 64 times the prefetch can be unloaded, at less than 1 KiB each (1.3 KiB without a key); then
// the stream is not read on, with a warning. A process that crashes leaves all of them to the others.
func WithPrefetch(n int) Option { return func(o *options) { o.prefetch = n } }

// WithPrefetchBytes bounds the bytes of the entries that are claimed, for each stream, beside
// [WithPrefetch]: nothing more is read while there are as many. A read cannot be told how many bytes
// to bring: it asks for as many entries as fit if none is larger than the largest of late, and for
// eight at first, so that more can be in memory for a while where entries suddenly become larger.
// Default 64 MiB, at least 1.
func WithPrefetchBytes(n int) Option { return func(o *options) { o.prefetchBytes = n } }

// WithRetry says how failures are repeated and after how many a message goes to the dead letters.
// Default: [inbox.DefaultRetry].
func WithRetry(r inbox.Retry) Option {
	return func(o *options) { o.Retry = r.WithDefaults(inbox.DefaultRetry()) }
}

// WithTimeout bounds one attempt of a handler: its context ends then. Default 30 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.Timeout = d } }

// WithObserver sets the observer of each attempt.
func WithObserver(observer inbox.Observer) Option { return func(o *options) { o.Observer = observer } }

// WithLogger sets where the consumer logs to. Default: slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(o *options) {
		if log != nil {
			o.Log = log
		}
	}
}

// WithClaimAfter sets after how long without a sign of life an entry is taken over from the
// member that has it. Members renew what they have claimed three times as often, also while a
// handler runs, so it does not bound handlers. All members of a group should have the same.
// Default 1 min, at least 100 ms.
func WithClaimAfter(d time.Duration) Option { return func(o *options) { o.claimAfter = d } }

// WithBlock sets how long a read waits for new entries. A stop waits for it, too, and each stream
// takes a connection of the client's pool for it. Default 1 s, from 1 ms to 1 min.
func WithBlock(d time.Duration) Option { return func(o *options) { o.block = d } }

// WithShutdownTimeout sets how long a stop waits for running handlers before it cancels their
// contexts. Default 30 s; 0 cancels them at once.
func WithShutdownTimeout(d time.Duration) Option { return func(o *options) { o.Shutdown = d } }

// WithDeadLetters names the stream that gets the dead letters of a stream. Default: [DeadStream],
// one for each group. On a cluster, streams with a hash tag, such as "{orders}" and
// "{orders}:dead:billing", let a message be moved in one step.
func WithDeadLetters(name func(stream string) string) Option {
	return func(o *options) { o.dead = name }
}

// WithNewOnly has a group that does not exist yet begin with what is added after it was created.
// Default: with the first entry of the stream. It changes nothing for a group that exists.
func WithNewOnly() Option { return func(o *options) { o.fromNow = true } }

// WithoutBackfill leaves the backfill streams alone. Default: beside each stream the consumer reads
// "<stream>:backfill", where producers put messages of low priority, once there is such a stream,
// and only while the stream itself has nothing new.
func WithoutBackfill() Option { return func(o *options) { o.noBackfill = true } }

// check reports everything that is wrong with what is Redis' own.
func (o *options) check(group string, streams []string) error {
	wrong := []error{
		o.Complain(group == "", "the group has no name"),
		o.Complain(len(streams) == 0, "there is no stream to read: name at least one"),
		o.Complain(o.name == "", "WithName: the name is empty: leave it out for one that no other process has"),
		o.Complain(o.prefetch < 1, "WithPrefetch: %d: give at least 1", o.prefetch),
		o.Complain(o.prefetchBytes < 1, "WithPrefetchBytes: %d: give at least 1", o.prefetchBytes),
		o.Complain(o.claimAfter < leastClaimAfter, "WithClaimAfter: %s: give at least %s", o.claimAfter, leastClaimAfter),
		o.Complain(o.block < leastBlock || o.block > mostBlock, "WithBlock: %s: give from %s to %s", o.block, leastBlock, mostBlock),
		o.Complain(o.source == nil, "WithSource: the function is nil: leave it out for the names of the streams"),
		o.Complain(o.dead == nil, "WithDeadLetters: the function is nil: leave it out for that of DeadStream"),
	}
	seen := map[string]bool{}
	for _, stream := range streams {
		wrong = append(wrong, o.Complain(stream == "", "a stream has no name"), o.Complain(seen[stream], "the stream %q is named twice", stream))
		seen[stream] = true
	}
	for _, stream := range streams {
		if o.dead != nil {
			dead := o.dead(stream)
			wrong = append(wrong, o.Complain(dead == "", "WithDeadLetters: the stream %q has no name for its dead letters", stream),
				o.Complain(dead != "" && seen[dead], "WithDeadLetters: the dead letters of %q would go to %q, which is read itself", stream, dead))
		}
		if o.source == nil {
			continue
		}
		if source := o.source(stream); source != stream { // a long name of a stream is bounded by itself
			if err := inbox.ValidateSource(source); err != nil {
				wrong = append(wrong, fmt.Errorf("redisconsumer: WithSource: %w", err))
			}
		}
	}
	return errors.Join(wrong...)
}

// DeadStream is where the dead letters of a stream go unless [WithDeadLetters] says otherwise: its
// name, ":dead:" and the group's, since what one group has abandoned is no business of the others'.
func DeadStream(stream, group string) string { return stream + ":dead:" + group }

// uniqueName is a name that no other consumer has.
func uniqueName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "consumer"
	}
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(rand.Text()[:8])
}

// expected is how many bytes an entry of a stream may have of which nothing has been read.
func (o *options) expected() int64 { return int64(max(o.prefetchBytes/8, 1)) }
