package gormplugin

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
)

type spanKey struct{}

// keepSpan remembers the application's span before a tracing plugin of GORM puts its own, for the
// statement, in its place. An event is caused by what the application does, not by the INSERT of
// its row. Statements within the statement (those of associations and hooks) find it in their
// context.
func keepSpan(db *gorm.DB) {
	ctx := db.Statement.Context
	if span := trace.SpanFromContext(ctx); span.SpanContext().IsValid() && ctx.Value(spanKey{}) == nil {
		db.Statement.Context = context.WithValue(ctx, spanKey{}, span)
	}
}

// inherited is what events inherit from the context of a statement.
func (p *Plugin) inherited(db *gorm.DB) *envelope.Context {
	ctx := db.Statement.Context
	if span, ok := ctx.Value(spanKey{}).(trace.Span); ok {
		ctx = trace.ContextWithSpan(ctx, span)
	}
	for _, enrich := range p.enrichers {
		ctx = enrich(ctx) //nolint:fatcontext // each enricher is to see what the ones before it have added
	}
	inherited := envelope.FromContext(ctx)
	return &inherited
}
