package envelope

import "fmt"

// The most bytes of UTF-8 that the texts of a message may have. They become columns, entries of
// indexes, attributes of brokers and rows of a consumer's inbox, each of which has a limit of its
// own; these are below all of them. [Catalog.Seal] refuses an event that exceeds one, in the
// request that raises it; the outbox tables refuse rows of plain SQL that do.
//
// Applications that take such values from a client check them where they come in: an id that is
// too long is the client's mistake, and cutting it short would make another id of it.
const (
	// MaxOrderingKeyBytes bounds an ordering key, that of [Key] as well as the stream of an
	// aggregate, which is its default.
	MaxOrderingKeyBytes = 512
	// MaxStreamBytes bounds headers.stream, domain.origin_stream and the name of a destination.
	MaxStreamBytes = 512
	// MaxTypeBytes bounds headers.type.
	MaxTypeBytes = 512
	// MaxAggregateBytes bounds the type of an aggregate, and its id.
	MaxAggregateBytes = 512
	// MaxContextBytes bounds each text of a [Context]: correlation id, causation id, tenant id,
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

// boundFlaw says what is wrong with a text of at most so many bytes, nil if nothing is. The length
// comes first: what is too long is not repeated in an error.
func boundFlaw(s string, most int) error { //nolint:unparam // that all texts have one bound is so by chance
	if len(s) > most {
		return fmt.Errorf("%.32q... has %d bytes, the most is %d", s, len(s), most)
	}
	return textFlaw(s)
}
