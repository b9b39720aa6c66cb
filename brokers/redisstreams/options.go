package redisstreams

import (
	"crypto/tls"
	"time"
)

// What a stream is trimmed by, as XADD has it.
const (
	trimLength = "MAXLEN"
	trimAge    = "MINID"
)

const (
	// defaultChunk is a batch of the processor. A larger one brings no more speed, a smaller one
	// holds the server, which runs one script at a time, for less time, and takes more round trips.
	defaultChunk = 500
	maxChunk     = 1000
	// maxChunkBytes ends a chunk early: a hundred payloads of a megabyte must not become one
	// command.
	maxChunkBytes = 4 << 20
	// maxFields keeps the fields of one entry within what Lua can unpack onto its stack (8,000
	// values).
	maxFields = 1000
	// preferredBatch is a chunk of the default size: what a processor hands over at once grows up
	// to it. Beyond it only the latency grows.
	preferredBatch = defaultChunk
)

// options of a broker, changed by [Option].
type options struct {
	chunk    int
	maxBytes int

	// trim is what streams are trimmed by, "" = they are not. operator is "=" or "~", limit a
	// length or milliseconds.
	trim, operator string
	limit          int64

	replicas       int // 0 = none are asked
	replicaTimeout time.Duration

	tls *tls.Config

	backfill      bool
	backfillBelow int
}

func defaults() options { return options{chunk: defaultChunk, maxBytes: MaxMessageBytes} }

// An Option changes a broker. Options that have no sensible meaning (a negative length) count as
// not given.
type Option func(*options)

// WithChunk sets how many messages go in one round trip, and so at most in one run of the script;
// at most 1,000. Default 500. Smaller chunks let other clients of the server in between, and leave
// fewer messages in doubt when a connection breaks.
func WithChunk(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.chunk = min(n, maxChunk)
		}
	}
}

// WithMaxLen trims each stream to n entries as messages are added; approx trims when whole nodes
// can go (MAXLEN ~), which costs far less and keeps somewhat more. Default: streams grow without
// bound. Entries that are trimmed before a consumer group has read them are lost for it: choose n
// for the longest outage of a consumer.
func WithMaxLen(n int64, approx bool) Option {
	return func(o *options) {
		if n <= 0 {
			return
		}
		o.trim, o.limit, o.operator = trimLength, n, operator(approx)
	}
}

// WithMaxAge trims each stream to the entries of the last d, as messages are added: nothing is
// removed from a stream that gets none. The age is reckoned by the server's clock alone, which also
// gives entries their ids. approx trims when whole nodes can go (MINID ~), which costs far less and
// keeps somewhat more. Needs Redis 6.2, and runs every message through the script, because no other
// command can read the server's clock: about three quarters of the speed. The least is one second.
//
// Redis trims by one of the two, length or age: of WithMaxLen and WithMaxAge the last one given
// holds. What was said there about consumer groups holds here.
func WithMaxAge(d time.Duration, approx bool) Option {
	return func(o *options) {
		if d < time.Second {
			return
		}
		o.trim, o.limit, o.operator = trimAge, d.Milliseconds(), operator(approx)
	}
}

func operator(approx bool) string {
	if approx {
		return "~"
	}
	return "="
}

// WithReplicas has each chunk acknowledged by n replicas of its server, within timeout, before its
// messages count as published (WAIT, on the same connection). Where fewer do, the broker is
// unavailable (on a cluster the destination), no message loses an attempt, and all are sent again
// later: the stream then holds them twice, once for the outage and not once per attempt, because
// after such a failure nothing is added until enough replicas have caught up. Default: none, the
// server's own word is enough.
//
// What is confirmed this way survives the loss of the primary if a replica that has it is promoted.
// That is certain only where n is the number of all replicas that may be promoted; with fewer,
// Sentinel and Cluster prefer the replica that is furthest, but do not promise it. Replicas
// acknowledge what they hold in memory, not on disk. And a primary that is cut off goes on
// confirming nothing, since its replicas no longer answer.
//
// timeout is at least a millisecond and must stay below the publish timeout; the read timeout of a
// client given to [New] must be longer. An ACL user needs WAIT and PING too. One second is a good
// start.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(o *options) {
		if n > 0 && timeout >= time.Millisecond {
			o.replicas, o.replicaTimeout = n, timeout
		}
	}
}

// WithTLS sets how [Open] talks TLS, with a URL that begins with rediss://: a certificate authority
// of one's own (RootCAs), a client certificate (Certificates). An empty ServerName means the URL's
// host. It does nothing for [New], whose client has its own settings. The configuration must not be
// changed afterwards.
func WithTLS(config *tls.Config) Option { return func(o *options) { o.tls = config } }

// WithBackfill sends messages with a priority lower than below to a stream of their own, the
// destination with ":backfill" at its end, so that consumers can read it when there is nothing
// better to do, as brokers/redisstreams/redisconsumer does by itself. Off by default; meant for internal brokers.
//
// A key keeps its order within each of the two streams; but consumers of two streams read them in any
// order. Give the messages of a key priorities on one side of below where that matters.
func WithBackfill(below int) Option {
	return func(o *options) { o.backfill, o.backfillBelow = true, below }
}

// WithMaxMessageBytes tells the broker about a lower limit of the server's (proto-max-bulk-len, at
// most and by default 512 MB), so that a payload above it fails for good and by itself instead of
// costing a connection.
func WithMaxMessageBytes(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.maxBytes = min(n, MaxMessageBytes)
		}
	}
}
