// Package otelrelay measures and traces relays with OpenTelemetry's API: where metrics and spans go
// is up to the providers. fanout.WithMeterProvider and fanout.WithTracerProvider use it; an engine
// that is composed by hand takes a [Metrics] and a [Tracer] as its observers. docs/metrics.md lists
// the instruments. Each has the attributes database and broker, or database alone where a figure is
// not about a broker; none comes from a message, so the number of series is bounded.
//
// Traces go through the outbox in three steps:
//
//   - The producer's span is that of the application under which an event was raised. Its W3C trace
//     context is stored in the row and sent on the wire, in the field traceparent and in the payload.
//     A relay never replaces it: a consumer belongs to what caused the event, however late and often
//     it was sent.
//   - Each call of a broker is a span "publish <broker>" of kind client, with links to the producers of
//     its messages. The context that the broker's client gets holds it, as the parent of spans of that
//     client.
//   - Each message whose producer was sampled gets a span "send <destination>" of kind producer. It is a
//     child of the producer's span while that is recent, so that one trace shows the way of a message,
//     and later a child of the call's span: by then the producer's trace was closed and looked at. It is
//     linked with the other one of the two.
package otelrelay

// Scope is the name of the instrumentation scope.
const Scope = "github.com/gorm-fanout/fanout/telemetry/otelrelay"
