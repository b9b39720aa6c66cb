package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"mime"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// Overrides replace, in the rows of one broker, what an event says by itself. They apply when the
// row is written, so a change concerns the events that are captured after it. Zero values leave the
// event's own.
type Overrides struct {
	// Destination is a template for the name of the stream or topic. {stream} stands for the
	// event's own destination, such as "ordering::order", {context} and {aggregate} for its first
	// and its last part, {type} for the event type on the wire, such as "Ordering.OrderPlaced.v1".
	// An event without an aggregate has the context for {aggregate}. Keys keep their order within
	// the broker, whatever the destination.
	Destination string
	// TTL is how long a message is worth delivering to this broker, counted from the event's time
	// or from its NotBefore, whichever is later; where the event has a TTL of its own, the shorter
	// one holds. It abandons rows; the deadline in the envelope stays the event's own.
	TTL time.Duration
	// ContentType of the messages, in place of application/json, such as
	// "application/vnd.acme+json". Not for CloudEvents, nor for messages in an encoding of their own, whose
	// content type says what they are.
	ContentType string
	// Attributes are sent with each message as flat fields beside those of the event, whose names
	// are refused here; see [ValidateAttribute].
	Attributes map[string]string
}

// placeholders of a destination template.
var placeholders = []string{"{stream}", "{context}", "{aggregate}", "{type}"}

var anyPlaceholder = regexp.MustCompile(`\{[^{}]*\}|[{}]`)

// ValidateDestination says what is wrong with a destination template.
func ValidateDestination(template string) error {
	if len(template) > limits.MaxStreamBytes {
		return fmt.Errorf("has %d bytes, the most is %d", len(template), limits.MaxStreamBytes)
	}
	for _, found := range anyPlaceholder.FindAllString(template, -1) {
		if !slices.Contains(placeholders, found) {
			return fmt.Errorf("%s is no placeholder: use %s", found, strings.Join(placeholders, ", "))
		}
	}
	return nil
}

// ValidateContentType says what is wrong with a content type.
func ValidateContentType(contentType string) error {
	if len(contentType) > limits.MaxContentTypeBytes {
		return fmt.Errorf("%.32q... has %d bytes, the most is %d", contentType, len(contentType), limits.MaxContentTypeBytes)
	}
	name, _, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.Contains(name, "/") {
		return fmt.Errorf("%q is not a media type such as application/json", contentType)
	}
	return nil
}

// MaxAttributes is the most static attributes that a broker's messages can have: half of what
// Google Cloud Pub/Sub, which has the lowest limits, takes.
const MaxAttributes = 50

// ValidateAttribute says what is wrong with a static attribute: the name of a field that messages
// have by themselves, one that a broker keeps for itself, more than 256 bytes of a name or 1024 of
// a value, or control characters, with which one header of a message could pass for two.
func ValidateAttribute(name, value string) error { return limits.AttributeFlaw(name, value) }

func (o *Overrides) validate(broker string, format envelope.Format) error {
	var problems []error
	check := func(err error, key string) {
		if err != nil {
			problems = append(problems, fmt.Errorf("outbox: broker %q: %s: %w", broker, key, err))
		}
	}
	check(ValidateDestination(o.Destination), "destination")
	if o.TTL < 0 {
		check(fmt.Errorf("is %s: use a positive duration", o.TTL), "ttl")
	}
	if o.ContentType != "" {
		check(ValidateContentType(o.ContentType), "content_type")
		if format == envelope.FormatCloudEvents {
			check(fmt.Errorf("does not go together with format cloudevents, whose messages are %s", envelope.FormatCloudEvents.ContentType()), "content_type")
		}
	}
	if len(o.Attributes) > MaxAttributes {
		check(fmt.Errorf("there are %d: use at most %d", len(o.Attributes), MaxAttributes), "attributes")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Attributes)) {
		check(ValidateAttribute(name, o.Attributes[name]), "attributes")
	}
	return errors.Join(problems...)
}

// apply puts the overrides on a row that stands as the event says. Bare is one whose payload is the data alone.
func (o *Overrides) apply(row *Row, m *envelope.Message, traceState, bare bool) error {
	if o.Destination != "" {
		row.Stream = o.destination(row)
	}
	if o.TTL > 0 {
		from := m.Metadata.Headers.Time
		if row.AvailableAt.After(from) {
			from = row.AvailableAt
		}
		if until := from.Add(o.TTL); row.ExpiresAt.IsZero() || until.Before(row.ExpiresAt) {
			row.ExpiresAt = until
		}
	}
	if !bare {
		row.ContentType = cmp.Or(o.ContentType, row.ContentType)
	}
	if len(o.Attributes) > 0 || bare {
		headers, err := headersOf(m, traceState, bare, o.Attributes)
		if err != nil {
			return err
		}
		row.Headers = headers
	}
	return nil
}

func (o *Overrides) destination(row *Row) string {
	first, _, _ := strings.Cut(row.Stream, "::")
	last := row.Stream[strings.LastIndex(row.Stream, ":")+1:]
	return strings.NewReplacer("{stream}", row.Stream, "{context}", first, "{aggregate}", last, "{type}", row.Type).Replace(o.Destination)
}
