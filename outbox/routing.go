package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// DefaultInternalBroker is the broker that gets every event where the configuration names none.
const DefaultInternalBroker = "default"

// DefaultMaxPayloadBytes bounds one payload where the configuration does not: a million bytes, so
// that with what goes beside it a message has room in the default limit of a NATS server, 1 MiB, and of
// Kafka, which is 12 bytes more.
const DefaultMaxPayloadBytes = 1_000_000

// Routing says which brokers an event is written for, and in which form. Writers and relays share
// it through the configuration; the relay itself needs only the names. The zero value routes
// everything to the internal broker "default". Routing is read-only once it is in use.
type Routing struct {
	// Table is the outbox table. Default: DefaultTable.
	Table string
	// InternalBroker gets every event in its full internal form. Default: DefaultInternalBroker.
	InternalBroker string
	// Internal is what the rows of the internal broker have in place of what an event says.
	Internal Overrides
	// External brokers get the events that are marked as published, stripped of what is internal.
	External []Route
	// MaxPayloadBytes bounds one payload as it goes on the wire. Default: DefaultMaxPayloadBytes.
	MaxPayloadBytes int
	// SerializeKeys makes writers of one ordering key take turns: before a transaction inserts its
	// rows it takes a lock for each of their keys, which it holds until it ends. Ids of one key are
	// then handed out in the order of the commits. It is needed only for keys whose writers share
	// no other lock; writers of an aggregate share that of its row. All writers of a table must
	// agree. It costs one more statement per flush, and writers of one key wait for each other's
	// commit. It changes nothing on SQLite, which has one writer at a time. Default: false.
	SerializeKeys bool
	// Notify makes writers on PostgreSQL wake relays in other processes, so that these need not
	// poll for new rows: by NOTIFY, after the commit, on another connection of the writer's pool,
	// at least 1 to 8 ms apart. Nothing is sent if a relay in the writer's process delivers the
	// rows, and nothing is added to a transaction. Default: false; a configuration sets it if a
	// database has notify.
	Notify bool
}

// Route is one external broker.
type Route struct {
	// Broker is its name.
	Broker string
	// Format of its messages. Default: envelope.FormatNative.
	Format envelope.Format
	// Types limits it to event types on the wire that match one of these patterns, in the form of
	// path.Match, such as "Ordering.*". Empty = all.
	Types []string
	// Source is the CloudEvents source; empty = "/<context>/<aggregate>".
	Source string
	// Extensions names the extensions that leave with this broker's messages, such as tenant_id and
	// actor. Default: none. What a message has beyond them stays inside.
	Extensions []string
	// Include names what else leaves with them. Default: nothing.
	Include envelope.Include
	// JSON has the data of all its messages be JSON, also of event types that have an encoding of their own, such as
	// Protobuf; "encoding: json" in a configuration. Default: false. See envelope.Encoding.
	JSON bool

	Overrides
}

// WithDefaults returns the routing with every default filled in.
func (r Routing) WithDefaults() Routing {
	if r.Table == "" {
		r.Table = DefaultTable
	}
	if r.InternalBroker == "" {
		r.InternalBroker = DefaultInternalBroker
	}
	if r.MaxPayloadBytes == 0 {
		r.MaxPayloadBytes = DefaultMaxPayloadBytes
	}
	r.External = slices.Clone(r.External)
	for i := range r.External {
		if r.External[i].Format == "" {
			r.External[i].Format = envelope.FormatNative
		}
	}
	return r
}

// Validate reports everything that is wrong with the routing, all problems joined in one error.
func (r Routing) Validate() error {
	r = r.WithDefaults()
	problems := []error{ValidateTable(r.Table)}
	if r.MaxPayloadBytes < 0 {
		problems = append(problems, fmt.Errorf("outbox: max_payload_bytes is %d: use a positive number of bytes", r.MaxPayloadBytes))
	}
	problems = append(problems, checkBrokerName(r.InternalBroker), r.Internal.validate(r.InternalBroker, envelope.FormatNative))
	seen := make(map[string]bool, len(r.External))
	for i, route := range r.External {
		switch {
		case route.Broker == "":
			problems = append(problems, fmt.Errorf("outbox: external broker %d has no name", i+1))
		case route.Broker == r.InternalBroker:
			problems = append(problems, fmt.Errorf("outbox: internal broker %q is also listed as external: its rows would collide; "+
				"remove it from external_brokers", route.Broker))
		case seen[route.Broker]:
			problems = append(problems, fmt.Errorf("outbox: duplicate external broker %q: list it once", route.Broker))
		}
		seen[route.Broker] = true
		problems = append(problems, checkBrokerName(route.Broker))
		if route.Format != envelope.FormatNative && route.Format != envelope.FormatCloudEvents {
			problems = append(problems, fmt.Errorf("outbox: external broker %q has format %q: use native or cloudevents", route.Broker, route.Format))
		}
		problems = append(problems, route.validateForm())
		problems = append(problems, route.validate(route.Broker, route.Format))
		for _, pattern := range route.Types {
			if _, err := path.Match(pattern, "x"); err != nil {
				problems = append(problems, fmt.Errorf("outbox: external broker %q has filter %q, which is not a pattern such as \"Ordering.*\"", route.Broker, pattern))
			}
		}
	}
	return errors.Join(problems...)
}

func checkBrokerName(name string) error {
	if reason := unfit(name, limits.MaxBrokerNameBytes); reason != "" {
		return fmt.Errorf("outbox: the name of broker %.32q %s", name, reason)
	}
	return nil
}

// ValidateExtensions says which of the extensions that are to leave with messages of a format
// cannot: names that are empty, too long, occur twice, or cannot be those of CloudEvents
// attributes.
func ValidateExtensions(names []string, format envelope.Format) error {
	var problems []error
	for i, name := range names {
		switch {
		case name == "" || unfit(name, limits.MaxAttributeNameBytes) != "":
			problems = append(problems, fmt.Errorf("%.40q is no name of an extension: use one such as tenant_id", name))
		case slices.Contains(names[:i], name):
			problems = append(problems, fmt.Errorf("%q is listed twice: list it once", name))
		}
	}
	if format == envelope.FormatCloudEvents && len(problems) == 0 {
		problems = append(problems, envelope.CloudEventOptions{Extensions: names}.Validate())
	}
	return errors.Join(problems...)
}

// validateForm checks what says how a message looks.
func (route *Route) validateForm() error {
	var problems []error
	if err := (envelope.CloudEventOptions{Source: route.Source}).Validate(); err != nil {
		problems = append(problems, fmt.Errorf("outbox: external broker %q: %w", route.Broker, err))
	}
	if err := ValidateExtensions(route.Extensions, route.Format); err != nil {
		problems = append(problems, fmt.Errorf("outbox: external broker %q: extensions: %w", route.Broker, err))
	}
	if more := (envelope.Include{TraceState: route.Include.TraceState}); route.Format == envelope.FormatCloudEvents && route.Include != more {
		problems = append(problems, fmt.Errorf("outbox: external broker %q: of what Include names, format cloudevents has TraceState alone", route.Broker))
	}
	return errors.Join(problems...)
}

// UnknownBrokerError is the answer to an event that is addressed to a broker which the routing does
// not have.
type UnknownBrokerError struct {
	EventType string
	Broker    string
	External  []string
}

// Error implements error.
func (e *UnknownBrokerError) Error() string {
	return fmt.Sprintf("outbox: event %s is addressed to broker %q, which is no external broker (there are %q): correct envelope.To, or add it to external_brokers",
		e.EventType, e.Broker, e.External)
}

// OversizeError is the answer to an event whose payload is over the limit.
type OversizeError struct {
	EventType string
	Broker    string
	Size, Max int
}

// Error implements error.
func (e *OversizeError) Error() string {
	return fmt.Sprintf("outbox: event %s is %d bytes for broker %q, over max_payload_bytes (%d): send a reference to the data, or raise the limit",
		e.EventType, e.Size, e.Broker, e.Max)
}

// AppendRows appends one row per target broker of a sealed message: the internal broker first, then
// the external ones in the order of the routing. Each form of the message is encoded once and
// shared between the brokers that want it, with the same extensions. The routing must have its
// defaults (see WithDefaults). Errors: *UnknownBrokerError, *OversizeError, and the envelope's own.
func (r Routing) AppendRows(rows []Row, m *envelope.Message) ([]Row, error) {
	facts := &m.Routing
	headers, err := headersOf(m, true, false, nil)
	if err != nil {
		return rows, err
	}
	plain := Row{
		MessageID: m.Metadata.Headers.ID, TargetBroker: r.InternalBroker, Stream: facts.Destination,
		Type: m.Metadata.Headers.Type, OrderingKey: facts.OrderingKey, Priority: facts.Priority, Headers: headers,
		AggregateType: facts.AggregateType, AggregateID: facts.AggregateID, CorrelationID: facts.CorrelationID,
		CausationID: facts.CausationID, TenantID: facts.TenantID, AvailableAt: facts.NotBefore, ExpiresAt: facts.ExpiresAt,
	}
	row := plain
	row.Payload, err = m.MarshalInternal()
	if err != nil {
		return rows, err
	}
	row.ContentType = envelope.FormatNative.ContentType()
	if err := errors.Join(r.Internal.apply(&row, m, true, false), r.checkSize(&row), r.checkTo(m)); err != nil {
		return rows, err
	}
	rows = append(rows, row)
	if !facts.Published {
		return rows, nil
	}

	return r.appendExternal(rows, &plain, m)
}

// appendExternal appends the rows of external brokers, which are plain but for what is said of them.
func (r Routing) appendExternal(rows []Row, plain *Row, m *envelope.Message) ([]Row, error) {
	lean := plain.Headers // without tracestate
	var err error
	if m.Routing.TraceState != "" {
		if lean, err = headersOf(m, false, false, nil); err != nil {
			return rows, err
		}
	}
	var (
		shared encoded
		room   [4]*envelope.Message // as a rule it is one
	)
	for i := range r.External {
		route := &r.External[i]
		for _, message := range route.leaving(room[:0], m) {
			row := *plain
			row.TargetBroker, row.MessageID, row.Type = route.Broker, message.Metadata.Headers.ID, message.Metadata.Headers.Type
			if !route.Include.TraceState {
				row.Headers = lean
			}
			bare := route.leavesBare(message)
			if bare {
				row.Payload, row.ContentType, err = message.MarshalData()
			} else {
				row.ContentType = route.Format.ContentType()
				row.Payload, err = shared.payload(message, route)
			}
			if err != nil {
				return rows, err
			}
			if err := errors.Join(route.apply(&row, message, route.Include.TraceState, bare), r.checkSize(&row)); err != nil {
				return rows, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// leavesBare reports whether the broker gets the data alone, without an envelope, in its encoding.
func (route *Route) leavesBare(m *envelope.Message) bool {
	return m.HasEncoding() && !route.JSON && route.Format == envelope.FormatNative
}

// encoded is a message in the native form, which brokers share that want the same in it.
type encoded struct {
	of      *envelope.Message
	route   *Route
	include envelope.Include
	native  []byte
}

// payload is a message in the form that a broker gets.
func (e *encoded) payload(m *envelope.Message, route *Route) (payload []byte, err error) {
	include := route.Include
	if include.OriginStream { // only to who gets messages such as the cause
		include.OriginStream = slices.ContainsFunc(m.Routing.CauseTypes(route.Broker), route.Passes)
	}
	switch {
	case route.Format == envelope.FormatCloudEvents: // the source may differ from broker to broker
		return m.MarshalCloudEvent(envelope.CloudEventOptions{
			Source: route.Source, Extensions: route.Extensions, TraceState: route.Include.TraceState, JSON: route.JSON,
		})
	case e.of == m && e.include == include && slices.Equal(e.route.Extensions, route.Extensions):
		return e.native, nil
	default:
		e.of, e.route, e.include = m, route, include
		e.native, err = m.MarshalExternal(include, route.Extensions...)
		return e.native, err
	}
}

func (r Routing) checkSize(row *Row) error {
	if len(row.Payload) > r.MaxPayloadBytes {
		return &OversizeError{EventType: row.Type, Broker: row.TargetBroker, Size: len(row.Payload), Max: r.MaxPayloadBytes}
	}
	return nil
}

// checkTo refuses a broker that does not exist, or for which the event has no contract, so that a typing error
// is no silent loss.
func (r Routing) checkTo(m *envelope.Message) error {
	for _, name := range m.Routing.To {
		if !r.isExternal(name) {
			return r.unknown(m.Metadata.Headers.Type, name)
		}
		if len(m.AppendExternal(nil, name)) == 0 {
			return withoutContract(m.Metadata.Headers.Type, name)
		}
	}
	return nil
}

func (r Routing) isExternal(name string) bool {
	return slices.ContainsFunc(r.External, func(route Route) bool { return route.Broker == name })
}

func (r Routing) unknown(eventType, broker string) error {
	external := make([]string, len(r.External))
	for i := range r.External {
		external[i] = r.External[i].Broker
	}
	return &UnknownBrokerError{EventType: eventType, Broker: broker, External: external}
}

// leaving appends what the broker gets of a message, by the event's To, its contracts and the broker's filter.
func (route *Route) leaving(messages []*envelope.Message, m *envelope.Message) []*envelope.Message {
	if m.Routing.To != nil && !slices.Contains(m.Routing.To, route.Broker) {
		return nil
	}
	return slices.DeleteFunc(m.AppendExternal(messages, route.Broker), func(one *envelope.Message) bool { return !route.Passes(one.Metadata.Headers.Type) })
}

// Passes reports whether the broker's filter, Types, lets an event type pass, such as
// Ordering.OrderPlaced.v1.
func (route *Route) Passes(eventType string) bool {
	return len(route.Types) == 0 || slices.ContainsFunc(route.Types, func(pattern string) bool {
		ok, _ := path.Match(pattern, eventType) // patterns were checked by Validate
		return ok
	})
}

// timeLayout is that of envelopes.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// headersOf is the headers column: what a broker sends as flat fields beside those that have
// columns of their own. The tracestate is that of whoever wrote it, and not for all to see. Beside data that is bare goes
// what a consumer else reads in the envelope.
func headersOf(m *envelope.Message, traceState, bare bool, static map[string]string) (string, error) {
	facts := &m.Routing
	if facts.TraceParent == "" && len(static) == 0 && len(facts.Headers) == 0 && !bare {
		return "", nil
	}
	headers := make(map[string]string, len(static)+len(facts.Headers)+5)
	maps.Copy(headers, static)
	maps.Copy(headers, facts.Headers)
	if facts.TraceParent != "" {
		headers[brokers.FieldTraceParent] = facts.TraceParent
	}
	if facts.TraceState != "" && traceState {
		headers[brokers.FieldTraceState] = facts.TraceState
	}
	if bare {
		headers[limits.FieldTime] = m.Metadata.Headers.Time.UTC().Format(timeLayout)
		for name, value := range map[string]string{limits.FieldSequenceID: m.Metadata.Domain.SequenceID, limits.FieldCausationID: facts.CausationID} {
			if value != "" {
				headers[name] = value
			}
		}
	}
	text, err := json.Marshal(headers)
	if err != nil {
		return "", fmt.Errorf("outbox: encode headers: %w", err)
	}
	return string(text), nil
}
