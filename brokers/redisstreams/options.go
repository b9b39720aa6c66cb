package redisstreams

import "time"

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
	// maxEntryBytes is what Redis stores in one entry of a stream (STREAM_LISTPACK_MAX_SIZE).
	maxEntryBytes = 1 << 30
	// maxFields keeps the fields of one entry within what Lua can unpack onto its stack (8,000
	// values).
	maxFields = 1000
	// preferredBatch is a chunk of the default size: what a processor hands over at once grows up
	// to it. Beyond it only the latency grows.
	preferredBatch = defaultChunk
)

// options of a broker, as its settings say.
type options struct {
	chunk    int
	maxBytes int

	// trim is what streams are trimmed by, "" = they are not. operator is "=" or "~", limit a
	// length or milliseconds.
	trim, operator string
	limit          int64

	replicas       int // 0 = none are asked
	replicaTimeout time.Duration

	backfill      bool
	backfillBelow int
}

// options are what the settings mean. What has no sensible meaning (a negative length) counts as not
// given.
func (s *Settings) options() options {
	o := options{chunk: defaultChunk, maxBytes: MaxMessageBytes}
	if s.Chunk > 0 {
		o.chunk = min(s.Chunk, maxChunk)
	}
	if s.MaxMessageBytes > 0 {
		o.maxBytes = min(s.MaxMessageBytes, MaxMessageBytes)
	}
	switch {
	case s.MaxAge >= time.Second:
		o.trim, o.limit, o.operator = trimAge, s.MaxAge.Milliseconds(), operator(!s.Exact)
	case s.MaxLen > 0:
		o.trim, o.limit, o.operator = trimLength, int64(s.MaxLen), operator(!s.Exact)
	}
	if s.Replicas > 0 {
		o.replicas, o.replicaTimeout = s.Replicas, defaultReplicaTimeout
		if s.ReplicaTimeout >= time.Millisecond {
			o.replicaTimeout = s.ReplicaTimeout
		}
	}
	if s.BackfillBelow != nil {
		o.backfill, o.backfillBelow = true, *s.BackfillBelow
	}
	return o
}

func operator(approx bool) string {
	if approx {
		return "~"
	}
	return "="
}
