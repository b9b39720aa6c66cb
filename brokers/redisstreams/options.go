package redisstreams

const (
	// defaultChunk is where a larger one brings no more speed (measured); a smaller one holds the server, which runs one
	// script at a time, for less time.
	defaultChunk = 100
	maxChunk     = 1000
	// maxChunkBytes ends a chunk early: a hundred payloads of a megabyte must not become one command.
	maxChunkBytes = 4 << 20
	// maxFields keeps the fields of one entry within what Lua can unpack onto its stack (8,000 values).
	maxFields = 1000
	// preferredBatch is five chunks of the default size; beyond it only the latency grows.
	preferredBatch = 500
)

// options of a broker, changed by [Option].
type options struct {
	chunk    int
	maxBytes int

	// trim is the operator of MAXLEN: "" = streams are not trimmed.
	trim   string
	maxLen int64

	backfill      bool
	backfillBelow int
}

func defaults() options { return options{chunk: defaultChunk, maxBytes: MaxMessageBytes} }

// An Option changes a broker. Options that have no sensible meaning (a negative length) count as not given.
type Option func(*options)

// WithChunk sets how many messages one script call adds, at most 1,000. Default 100. Smaller chunks let other clients of the
// server in between; what a stopped publisher has under way is one chunk.
func WithChunk(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.chunk = min(n, maxChunk)
		}
	}
}

// WithMaxLen trims each stream to n entries as messages are added; approx trims when whole nodes can go (MAXLEN ~), which costs
// far less and keeps somewhat more. Default: streams grow without bound. Entries that are trimmed before a consumer group has
// read them are lost for it: choose n for the longest outage of a consumer.
func WithMaxLen(n int64, approx bool) Option {
	return func(o *options) {
		if n <= 0 {
			return
		}
		o.maxLen, o.trim = n, "="
		if approx {
			o.trim = "~"
		}
	}
}

// WithBackfill sends messages with a priority lower than below to a stream of their own, the destination with ":backfill" at
// its end, so that consumers can read it when there is nothing better to do. Off by default; meant for internal brokers.
//
// A key keeps its order within each of the two streams, and a message is not sent before an earlier one of its key has been
// confirmed in the other; but consumers of two streams read them in any order. Give the messages of a key one priority where
// that matters.
func WithBackfill(below int) Option {
	return func(o *options) { o.backfill, o.backfillBelow = true, below }
}

// WithMaxMessageBytes tells the broker about a lower limit of the server's (proto-max-bulk-len, at most and by default 512 MB),
// so that a payload above it fails for good and by itself instead of costing a connection.
func WithMaxMessageBytes(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.maxBytes = min(n, MaxMessageBytes)
		}
	}
}
