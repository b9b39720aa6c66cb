// Package limits has the bounds that envelopes, rows, inboxes and tokens have in common.
package limits

// The most bytes of UTF-8 that the texts of a message may have. They become columns, entries of
// indexes, attributes of brokers and rows of a consumer's inbox, each of which has a limit of its
// own; these are below all of them. envelope.Catalog.Seal refuses an event that exceeds one, in the
// request that raises it; the outbox tables refuse rows of plain SQL that do.
const (
	// MaxOrderingKeyBytes bounds an ordering key, that of envelope.Key as well as the stream of an
	// aggregate, which is its default.
	MaxOrderingKeyBytes = 512
	// MaxStreamBytes bounds headers.stream, domain.origin_stream and the name of a destination.
	MaxStreamBytes = 512
	// MaxTypeBytes bounds headers.type.
	MaxTypeBytes = 512
	// MaxAggregateBytes bounds the type of an aggregate, and its id.
	MaxAggregateBytes = 512
	// MaxContextBytes bounds each text of a envelope.Context: correlation id, causation id, tenant id,
	// actor and idempotency key.
	MaxContextBytes = 512
	// MaxTraceStateBytes bounds a tracestate. A longer one is no error: it is left out.
	MaxTraceStateBytes = 512
	// MaxContentTypeBytes bounds a content type.
	MaxContentTypeBytes = 256
	// MaxBrokerNameBytes bounds the name of a broker.
	MaxBrokerNameBytes = 128
	// MaxHeadersBytes bounds what is sent beside a payload, as the JSON object that it is in the table.
	MaxHeadersBytes = 64 << 10
)

// BytesPerInsert bounds the payloads and headers of one INSERT, beyond its first row: drivers and
// servers hold several copies of a statement. On MySQL it is also one packet, of which servers take
// 16 MiB by default (max_allowed_packet), and escaping can double the payloads.
const BytesPerInsert = 4 << 20
