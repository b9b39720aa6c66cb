package envelope

import (
	"context"
	"maps"
	"reflect"

	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// Names of the extensions that carry the context's own values.
const (
	// ExtensionTenantID holds the tenant. Whatever sets it, [WithTenantID] or an
	// extension of that name, also fills [Routing.TenantID].
	ExtensionTenantID = "tenant_id"
	// ExtensionActor holds who acted.
	ExtensionActor = "actor"
)

// Context is what the events of a request inherit from it. Strings that are empty
// are null on the wire, but for the correlation id, which is then generated.
type Context struct {
	CorrelationID  string         // names the whole business process; see WithCorrelationID
	CausationID    string         // id of the message that caused this one
	TenantID       string         // extension tenant_id
	Actor          string         // extension actor: who acted
	IdempotencyKey string         // key the client gave with the request
	OriginStream   string         // stream of the message that caused this one
	Priority       *PriorityLevel // nil: as the event type says
	TraceParent    string         // W3C; a malformed one is ignored, its state too
	TraceState     string         // W3C
	Extensions     map[string]any // values as for Extension

	cause struct{ stream, wireType string } // see causeType
}

// causeType is the type on the wire of the message that OriginStream is of; "" where it is not known, as of a
// stream set by hand beside [WithCause].
func (c *Context) causeType() string {
	if c.cause.stream != c.OriginStream {
		return ""
	}
	return c.cause.wireType
}

// SetExtension sets one extension, replacing an earlier value of that name.
func (c *Context) SetExtension(name string, value any) {
	if c.Extensions == nil {
		c.Extensions = make(map[string]any, 1)
	}
	c.Extensions[name] = value
}

type contextKey struct{}

// with returns ctx carrying a changed copy: contexts are shared, never written.
func with(ctx context.Context, change func(*Context)) context.Context {
	var cx Context
	if stored, ok := ctx.Value(contextKey{}).(*Context); ok {
		cx = *stored
	}
	change(&cx)
	return context.WithValue(ctx, contextKey{}, &cx)
}

// WithCorrelationID sets domain.correlation_id of the events raised under ctx:
// the id that all messages of one business process share. Where there is none, the
// events of a unit of work (a transaction, or a call of outbox.Writer.Insert) share
// the message id of the first of those that have none; [WithCause] passes it on.
func WithCorrelationID(ctx context.Context, id string) context.Context {
	return with(ctx, func(cx *Context) { cx.CorrelationID = id })
}

// WithCausationID sets domain.causation_id: the id of the message or command that
// caused the events raised under ctx. Consumers use [WithCause].
func WithCausationID(ctx context.Context, id string) context.Context {
	return with(ctx, func(cx *Context) { cx.CausationID = id })
}

// WithTenantID sets the tenant, which travels as the extension tenant_id; to an
// external broker only where that broker lists it.
func WithTenantID(ctx context.Context, id string) context.Context {
	return with(ctx, func(cx *Context) { cx.TenantID = id })
}

// WithActor sets who acts, which travels as the extension actor; to an external
// broker only where that broker lists it.
func WithActor(ctx context.Context, actor string) context.Context {
	return with(ctx, func(cx *Context) { cx.Actor = actor })
}

// WithIdempotencyKey sets headers.idempotency_key: the key that the client gave
// with the request.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return with(ctx, func(cx *Context) { cx.IdempotencyKey = key })
}

// WithOriginStream sets domain.origin_stream: the stream of the message that
// caused the events raised under ctx. Consumers use [WithCause].
func WithOriginStream(ctx context.Context, stream string) context.Context {
	return with(ctx, func(cx *Context) { cx.OriginStream, cx.cause.wireType = stream, "" })
}

// WithPriority sets the priority of the events raised under ctx, above what their
// types say and below what an event itself says; see [PriorityLevel].
func WithPriority(ctx context.Context, p PriorityLevel) context.Context {
	return with(ctx, func(cx *Context) { cx.Priority = &p })
}

// WithExtension adds an extension to the events raised under ctx; values as for
// [Extension]. It leaves to the external brokers that list it, and to no others.
func WithExtension(ctx context.Context, name string, value any) context.Context {
	return with(ctx, func(cx *Context) {
		cx.Extensions = maps.Clone(cx.Extensions)
		cx.SetExtension(name, value)
	})
}

// WithTrace sets the W3C trace context for applications without OpenTelemetry. A
// valid OpenTelemetry span in ctx wins over it.
func WithTrace(ctx context.Context, traceParent, traceState string) context.Context {
	return with(ctx, func(cx *Context) { cx.TraceParent, cx.TraceState = traceParent, traceState })
}

// WithCause makes a consumed message the cause of the events raised under ctx:
// its id is their causation id, its stream their origin; correlation id (its own
// id where it has none), tenant and actor pass on. The trace does not: that is
// the consumer's span, which a tracer puts into ctx. Another producer's stream or
// correlation id that [Catalog.Seal] would refuse counts as none; a tenant or an
// actor that it would refuse passes on, so that nothing is done without one.
func WithCause(ctx context.Context, m *Message) context.Context {
	return with(ctx, func(cx *Context) {
		cx.CausationID = m.Metadata.Headers.ID.String()
		cx.OriginStream, cx.cause.wireType = "", ""
		if boundFlaw(m.Metadata.Headers.Stream, limits.MaxStreamBytes) == nil {
			cx.OriginStream = m.Metadata.Headers.Stream
			cx.cause.stream, cx.cause.wireType = cx.OriginStream, m.Metadata.Headers.Type
		}
		cx.CorrelationID = m.Metadata.Domain.CorrelationID
		if cx.CorrelationID == "" || boundFlaw(cx.CorrelationID, limits.MaxContextBytes) != nil {
			cx.CorrelationID = cx.CausationID
		}
		if tenant, ok := m.Metadata.Extensions[ExtensionTenantID].(string); ok {
			cx.TenantID = tenant
		}
		if actor, ok := m.Metadata.Extensions[ExtensionActor].(string); ok {
			cx.Actor = actor
		}
	})
}

// FromContext returns what ctx carries, the trace of its OpenTelemetry span
// included. The result is the caller's own to change; extensions in which there may
// be maps, slices or pointers are as a consumer would decode them.
func FromContext(ctx context.Context) Context {
	var cx Context
	if stored, ok := ctx.Value(contextKey{}).(*Context); ok {
		cx = *stored
		cx.Extensions = snapshot(cx.Extensions)
		if cx.Priority != nil {
			p := *cx.Priority
			cx.Priority = &p
		}
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		cx.TraceParent, cx.TraceState = w3c(span)
	}
	return cx
}

// snapshot copies extensions, so that what becomes of their values later does not
// matter. A value without JSON is left for Seal to report.
func snapshot(extensions map[string]any) map[string]any {
	copied := maps.Clone(extensions)
	for name, value := range copied {
		if k := reflect.ValueOf(value).Kind(); k <= reflect.Complex128 || k == reflect.String {
			continue // it cannot change
		}
		if normal, err := normalize(value); err == nil {
			copied[name] = normal
		}
	}
	return copied
}
