package redisconsumer

import (
	"cmp"
	"crypto/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// The defaults of what Redis' consumers have of their own.
const (
	DefaultClaimAfter = time.Minute
	DefaultBlock      = time.Second
)

const (
	leastClaimAfter = 100 * time.Millisecond
	leastBlock      = time.Millisecond
	mostBlock       = time.Minute
	// renewals within the time after which an entry may be taken over: one may fail.
	renewals = 3
)

// Config is what a [Consumer] is made of, besides its arguments. The zero value has all defaults.
//
// MaxOutstandingMessages and MaxOutstandingBytes hold for each stream. A read cannot be told how many
// bytes to bring: it asks for as many entries as fit if none is larger than the largest of late, and
// for eight at first, so that more can be in memory for a while where entries suddenly become larger.
//
// Messages that wait behind a failing one of their key count, too. Where they fill the room while
// workers are idle, they are unloaded: they stay pending for this consumer, and keep their order, but
// their payloads are dropped and fetched again when it is their turn. So other keys are read on. 64
// times MaxOutstandingMessages can be unloaded, at less than 1 KiB each (1.3 KiB without a key); then
// the stream is not read on, with a warning. A process that crashes leaves all of them to the others.
//
// DeadLetters gives a stream, [DeadStream] by default. On a cluster, streams with a hash tag, such as
// "{orders}" and "{orders}:dead:billing", let a message be moved in one step.
type Config struct {
	inbox.ConsumerConfig

	// Name is that of this member of the group. No two that run may have the same name: they would
	// take each other's messages. Default: host name, process id and a random part. A process that
	// comes back under its old name gets at once what it had claimed when it died, instead of after
	// ClaimAfter.
	Name string
	// ClaimAfter is after how long without a sign of life an entry is taken over from the member that
	// has it. Members renew what they have claimed three times as often, also while a handler runs, so
	// it does not bound handlers. All members of a group should have the same. Default 1 min, at
	// least 100 ms.
	ClaimAfter time.Duration
	// Block is how long a read waits for new entries. A stop waits for it, too, and each stream takes a
	// connection of the client's pool for it. Default 1 s, from 1 ms to 1 min.
	Block time.Duration
	// NewOnly has a group that does not exist yet begin with what is added after it was created.
	// Default: with the first entry of the stream. It changes nothing for a group that exists.
	NewOnly bool
	// WithoutBackfill leaves the backfill streams alone. Default: beside each stream the consumer reads
	// "<stream>:backfill", where producers put messages of low priority, once there is such a stream,
	// and only while the stream itself has nothing new.
	WithoutBackfill bool

	named bool // by the caller: an earlier process may have had the name
}

// complete fills in what is not set, and reports all that is wrong.
func (c *Config) complete(group string, streams []string, handler inbox.Handler) *consumer.Problems {
	if c.DeadLetters == nil {
		c.DeadLetters = func(stream string) string { return DeadStream(stream, group) }
	}
	c.named = c.Name != ""
	c.Name = cmp.Or(c.Name, uniqueName())
	wrong := consumer.Complete("redisconsumer", &c.ConsumerConfig, handler, group, streams...)
	c.ClaimAfter, c.Block = cmp.Or(c.ClaimAfter, DefaultClaimAfter), cmp.Or(c.Block, DefaultBlock)
	wrong.If(group == "", "the group has no name")
	wrong.If(c.ClaimAfter < leastClaimAfter, "ClaimAfter is %s: give at least %s", c.ClaimAfter, leastClaimAfter)
	wrong.If(c.Block < leastBlock || c.Block > mostBlock, "Block is %s: give from %s to %s", c.Block, leastBlock, mostBlock)
	wrong.Sources("stream", streams, c.DeadLetters)
	for _, stream := range streams {
		dead := c.DeadLetters(stream)
		of, backfill := strings.CutSuffix(dead, backfillSuffix)
		backfill = backfill && !c.WithoutBackfill && slices.Contains(streams, of)
		wrong.If(backfill, "DeadLetters: those of %q would go to %q, a backfill that is read: see WithoutBackfill", stream, dead)
	}
	return wrong
}

// DeadStream is where the dead letters of a stream go unless DeadLetters says otherwise: its name,
// ":dead:" and the group's, since what one group has abandoned does not concern the others.
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
func (c *Config) expected() int64 { return int64(max(c.MaxOutstandingBytes/8, 1)) }
