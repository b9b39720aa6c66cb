// Package gormplugins_test tests the plugin beside plugins of others, which the library itself does
// not need.
package gormplugins_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"
	"gorm.io/plugin/opentelemetry/tracing"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

// resolver makes a resolver whose pools are closed, and checked, after the case.
func (b *bench) resolver(config dbresolver.Config, data ...any) *dbresolver.DBResolver {
	resolver := dbresolver.Register(config, data...)
	b.t.Cleanup(func() {
		_ = resolver.Call(func(conn gorm.ConnPool) error {
			pool, ok := conn.(*sql.DB)
			if wrapped, isWrapped := conn.(gorm.GetDBConnector); isWrapped {
				pool, _ = wrapped.GetDBConn()
				ok = pool != nil
			}
			if assert.True(b.t, ok) {
				assert.Zero(b.t, pool.Stats().InUse, "a connection of the resolver stays in use")
				_ = pool.Close()
			}
			return nil
		})
	})
	return resolver
}

// A replica takes no writes, so that a flush that goes there fails.
func (b *bench) replica() []gorm.Dialector { return []gorm.Dialector{b.dial(true)} }

func (b *bench) source() []gorm.Dialector { return []gorm.Dialector{b.dial(false)} }

func TestResolver(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	for name, config := range map[string]gorm.Config{
		"": {}, ", prepared": {PrepareStmt: true}, ", no default transaction": {SkipDefaultTransaction: true},
	} {
		for name2, sources := range map[string]func(b *bench) []gorm.Dialector{
			"a replica": func(*bench) []gorm.Dialector { return nil }, "a source and a replica": (*bench).source,
		} {
			cases["resolver with "+name2+" before the plugin"+name] = func(b *bench) {
				own := config
				db := b.open(&own)
				b.ok(db.Use(b.resolver(dbresolver.Config{Sources: sources(b), Replicas: b.replica()})))
				b.use(db)
				b.scenario(db)
			}
			cases["resolver with "+name2+" after the plugin"+name] = func(b *bench) {
				own := config
				db := b.open(&own)
				b.use(db)
				b.ok(db.Use(b.resolver(dbresolver.Config{Sources: sources(b), Replicas: b.replica()})))
				b.scenario(db)
			}
		}
	}
	cases["resolver for one model"] = func(b *bench) {
		db := b.open(&gorm.Config{})
		b.use(db)
		b.ok(db.Use(b.resolver(dbresolver.Config{Sources: b.source(), Replicas: b.replica()}, &Order{})))
		b.scenario(db)
		b.ok(db.Create(&Plain{}).Error)
	}
	cases["resolver and a transaction that asks for the source"] = func(b *bench) {
		db := b.open(&gorm.Config{})
		b.use(db)
		b.ok(db.Use(b.resolver(dbresolver.Config{Sources: b.source(), Replicas: b.replica()})))
		tx := db.Clauses(dbresolver.Write).Begin()
		b.ok(tx.Create(order("1", "a")).Error)
		b.ok(tx.Commit().Error)
		b.want("1: a")
	}
	cases["resolver sets the limits of its pools"] = func(b *bench) {
		db := b.open(&gorm.Config{})
		b.use(db)
		resolver := b.resolver(dbresolver.Config{Sources: b.source()}).SetMaxOpenConns(3).SetMaxIdleConns(2)
		b.ok(db.Use(resolver))
		b.ok(resolver.Call(func(conn gorm.ConnPool) error {
			pool, err := conn.(gorm.GetDBConnector).GetDBConn()
			b.ok(err)
			assert.Equal(b.t, 3, pool.Stats().MaxOpenConnections)
			return nil
		}))
		b.scenario(db)
	}
	runCases(t, cases)
}

// The trace of a message is that of the application's span, not of the span that GORM's plugin puts
// around a statement.
func TestTracing(t *testing.T) {
	t.Parallel()
	register := map[string]func(b *bench, db *gorm.DB, tracer gorm.Plugin){
		"before": func(b *bench, db *gorm.DB, tracer gorm.Plugin) {
			b.ok(db.Use(tracer))
			b.use(db)
		},
		"after": func(b *bench, db *gorm.DB, tracer gorm.Plugin) {
			b.use(db)
			b.ok(db.Use(tracer))
		},
	}
	cases := map[string]func(b *bench){}
	for when, use := range register {
		for what, write := range map[string]func(b *bench, db *gorm.DB) error{
			"create": func(_ *bench, db *gorm.DB) error { return db.Create(order("1", "a")).Error },
			"save":   func(_ *bench, db *gorm.DB) error { return db.Save(order("1", "a")).Error },
			"update": func(b *bench, db *gorm.DB) error {
				return db.Model(b.stored("1", "a")).Update("status", "x").Error
			},
			"delete": func(b *bench, db *gorm.DB) error { return db.Delete(b.stored("1", "a")).Error },
			"create in a transaction": func(_ *bench, db *gorm.DB) error {
				return db.Transaction(func(tx *gorm.DB) error { return tx.Create(order("1", "a")).Error })
			},
			"publish": func(b *bench, db *gorm.DB) error {
				return db.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(&Plain{}).Error)
					return uow.Publish(tx, Happened{"a"})
				})
			},
			"create without a default transaction": func(_ *bench, db *gorm.DB) error {
				return db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(order("1", "a")).Error
			},
			"create of children": func(_ *bench, db *gorm.DB) error {
				return db.Create(&Buyer{ID: "b", Card: raising(&Card{ID: "1"}, "a")}).Error
			},
			"hook that publishes": func(_ *bench, db *gorm.DB) error {
				return db.Create(&Hooked{ID: "1", Act: func(tx *gorm.DB) error { return uow.Publish(tx, Happened{"a"}) }}).Error
			},
		} {
			cases[what+", tracing registered "+when+" the plugin"] = func(b *bench) {
				spans := tracetest.NewInMemoryExporter()
				provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
				db := b.open(&gorm.Config{})
				use(b, db, tracing.NewPlugin(tracing.WithTracerProvider(provider), tracing.WithoutMetrics()))
				ctx, span := provider.Tracer("application").Start(b.t.Context(), "request")
				b.ok(write(b, db.WithContext(ctx)))
				span.End()
				var payloads [][]byte
				b.ok(b.db.Table(b.outbox()).Pluck("payload", &payloads).Error)
				require.Len(b.t, payloads, 1)
				message, err := envelope.DecodeInternal(payloads[0])
				b.ok(err)
				parent := message.Metadata.Headers.TraceParent
				require.NotNil(b.t, parent)
				assert.Equal(b.t, span.SpanContext().TraceID().String(), parent.TraceID)
				assert.Equal(b.t, span.SpanContext().SpanID().String(), parent.ParentID)
				assert.Greater(b.t, len(spans.GetSpans()), 1, "GORM's plugin was at work")
			}
		}
	}
	runCases(t, cases)
}
