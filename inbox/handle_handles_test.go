package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/outbox"
	mysqlstore "github.com/gorm-fanout/fanout/outbox/mysql"
	pgstore "github.com/gorm-fanout/fanout/outbox/postgres"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	mssqlstore "github.com/gorm-fanout/fanout/outbox/sqlserver"
	"github.com/gorm-fanout/fanout/uow"
)

// InvoiceIssued is what an invoice raises, InvoicesCounted belongs to none.
type (
	InvoiceIssued struct {
		Invoice string `json:"invoice"`
	}
	InvoicesCounted struct {
		N int `json:"n"`
	}
)

type Invoice struct {
	ID     string `gorm:"primaryKey;size:64"`
	Amount int
	uow.Aggregate
}

func (p *place) outbox() string { return p.table + "_o" }

type migrator interface {
	Migrate(ctx context.Context) ([]string, error)
}

// stores open the outbox on a pool.
var stores = map[string]func(pool *sql.DB, table string) (migrator, error){
	"mysql":     func(pool *sql.DB, table string) (migrator, error) { return mysqlstore.New(pool, table) },
	"sqlite":    func(pool *sql.DB, table string) (migrator, error) { return sqlitestore.New(pool, table) },
	"sqlserver": func(pool *sql.DB, table string) (migrator, error) { return mssqlstore.New(pool, table) },
}

// capturing is a handle with the plugin, and an outbox in the place.
func (p *place) capturing(config *gorm.Config) *gorm.DB {
	p.t.Helper()
	ctx := p.t.Context()
	pool, err := p.db.DB()
	require.NoError(p.t, err)
	var store migrator
	if p.dsn != "" {
		opened, err := pgstore.Open(ctx, p.dsn, p.outbox(), pgstore.WithMaxConns(1))
		require.NoError(p.t, err)
		defer func() { require.NoError(p.t, opened.Close()) }()
		store = opened
	} else {
		store, err = stores[p.db.Name()](pool, p.outbox())
	}
	require.NoError(p.t, err)
	_, err = store.Migrate(ctx)
	require.NoError(p.t, err)
	require.NoError(p.t, p.plain().Migrator().CreateTable(&Invoice{}))
	if p.db.Name() == "sqlserver" {
		p.t.Cleanup(func() { p.exec("DROP TABLE invoices") })
	}
	return p.use(p.open(config))
}

func (p *place) use(db *gorm.DB) *gorm.DB {
	p.t.Helper()
	catalog := envelope.NewCatalog("billing")
	envelope.Register[InvoiceIssued](catalog)
	envelope.Register[InvoicesCounted](catalog)
	require.NoError(p.t, db.Use(gormplugin.New(catalog, outbox.Routing{Table: p.outbox()}, gormplugin.WithLogger(slog.New(slog.DiscardHandler)))))
	return db
}

type outboxRow struct{ Type, CausationID, CorrelationID, TenantID string }

func (p *place) raised() []outboxRow {
	p.t.Helper()
	var payloads [][]byte
	require.NoError(p.t, p.plain().Table(p.outbox()).Order("id").Pluck("payload", &payloads).Error)
	var rows []outboxRow
	for _, payload := range payloads {
		_, m, err := envelope.Decode(payload)
		require.NoError(p.t, err)
		tenant, _ := m.Metadata.Extensions[envelope.ExtensionTenantID].(string)
		rows = append(rows, outboxRow{Type: m.Metadata.Headers.Type, CausationID: m.Metadata.Domain.CausationID, CorrelationID: m.Metadata.Domain.CorrelationID, TenantID: tenant})
	}
	return rows
}

// Events that the handler raises go to the outbox with the same commit, caused by the message;
// those of a failed attempt do not.
func TestHandleCaptures(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		db := p.capturing(&gorm.Config{})
		m := p.message()
		m.Envelope.Metadata.Domain.CorrelationID = "order-17"
		m.Envelope.Metadata.Extensions = map[string]any{envelope.ExtensionTenantID: "t1"}
		handler := func(tx *gorm.DB) error {
			invoice := &Invoice{ID: "i-" + m.Key.String(), Amount: 5}
			invoice.Raise(InvoiceIssued{Invoice: invoice.ID})
			if err := tx.Create(invoice).Error; err != nil {
				return err
			}
			return uow.Publish(tx, InvoicesCounted{N: 1})
		}
		_, err := inbox.Handle(t.Context(), db, m, func(tx *gorm.DB) error { return errors.Join(handler(tx), errBoom) }, p.at())
		require.ErrorIs(t, err, errBoom)
		require.Empty(t, p.raised())
		for _, want := range []inbox.Outcome{inbox.Handled, inbox.Duplicate} {
			outcome, err := inbox.Handle(t.Context(), db, m, handler, p.at())
			require.NoError(t, err)
			require.Equal(t, want, outcome)
		}
		want := outboxRow{Type: "Billing.InvoiceIssued.v1", CausationID: m.Key.String(), CorrelationID: "order-17", TenantID: "t1"}
		other := want
		other.Type = "Billing.InvoicesCounted.v1"
		require.Equal(t, []outboxRow{want, other}, p.raised())
		require.Equal(t, 1, p.count("SELECT count(*) FROM invoices"))

		// What cannot be written fails at the commit, which counts: nothing would fix it.
		unknown := p.message()
		_, err = inbox.Handle(t.Context(), db, unknown, func(tx *gorm.DB) error { return uow.Publish(tx, struct{ X int }{1}) }, p.at())
		require.Error(t, err)
		require.Equal(t, 1, p.row(unknown).Attempts)
	})
}

// What a message causes names it, and shares its correlation id, through a chain of handlers; a message
// without one, of another producer, gives its own id.
func TestHandleCorrelates(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		db := p.capturing(&gorm.Config{})
		publish := func(tx *gorm.DB) error {
			return errors.Join(uow.Publish(tx, InvoicesCounted{N: 1}), uow.Publish(tx, InvoicesCounted{N: 2}))
		}
		require.NoError(t, db.Transaction(publish))
		var last string // row of the outbox
		next := func() *inbox.Message {
			t.Helper()
			var payloads [][]byte
			require.NoError(t, p.plain().Table(p.outbox()).Order("id DESC").Limit(1).Pluck("payload", &payloads).Error)
			m, err := inbox.Decode(payloads[0], nil)
			require.NoError(t, err)
			require.NotEqual(t, last, m.ID)
			last, m.Consumer = m.ID, "billing"
			return m
		}
		handle := func(m *inbox.Message) {
			t.Helper()
			outcome, err := inbox.Handle(t.Context(), db, m, publish, p.at())
			require.NoError(t, err)
			require.Equal(t, inbox.Handled, outcome)
		}
		raised := p.raised()
		correlation := raised[0].CorrelationID
		require.NotEmpty(t, correlation)
		require.Equal(t, correlation, raised[1].CorrelationID)
		for range 3 {
			m := next()
			handle(m)
			raised = p.raised()
			for _, caused := range raised[len(raised)-2:] {
				require.Equal(t, outboxRow{Type: "Billing.InvoicesCounted.v1", CausationID: m.ID, CorrelationID: correlation}, caused)
			}
		}
		foreign := p.message()
		require.Empty(t, foreign.Envelope.Metadata.Domain.CorrelationID)
		handle(foreign)
		raised = p.raised()
		require.Equal(t, outboxRow{Type: "Billing.InvoicesCounted.v1", CausationID: foreign.ID, CorrelationID: foreign.ID}, raised[len(raised)-1])
	})
}

// A life is what a message goes through on a handle: it fails, is handled, comes again; another one
// becomes a dead letter.
func (p *place) life(t *testing.T, db *gorm.DB) {
	t.Helper()
	ctx := t.Context()
	options := []inbox.Option{p.at()}
	m, poison := p.message(), p.message()
	failing := func(tx *gorm.DB) error { return errors.Join(p.effect(m)(tx), errBoom) }
	_, err := inbox.Handle(ctx, db, m, failing, options...)
	require.ErrorIs(t, err, errBoom)
	require.Equal(t, "failed", p.row(m).Status)
	for _, want := range []inbox.Outcome{inbox.Handled, inbox.Duplicate, inbox.Duplicate} {
		outcome, err := inbox.Handle(ctx, db, m, p.effect(m), options...)
		require.NoError(t, err)
		require.Equal(t, want, outcome)
	}
	require.Equal(t, 1, p.done(m))
	_, err = inbox.Handle(ctx, db, poison, failing, options...)
	require.ErrorIs(t, err, errBoom)
	for range 2 {
		outcome, err := inbox.Handle(ctx, db, poison, failing, options...)
		require.NoError(t, err)
		require.Equal(t, inbox.DeadLettered, outcome)
	}
	require.Equal(t, 1, p.done(m))
	page, err := inbox.DeadLetters(ctx, db, inbox.DeadLetterFilter{Limit: 1}, p.at())
	require.NoError(t, err)
	require.Len(t, page, 1)
	n, err := inbox.RedriveAll(ctx, db, consumer, "", p.at())
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	done, err := inbox.Redeliver(ctx, db, consumer, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		return inbox.Handle(ctx, db, m, p.effect(m), options...)
	}), options...)
	require.NoError(t, err)
	require.Equal(t, 1, done)
	require.Equal(t, 1, p.done(poison))
}

// single lets a handle have one connection: whoever waits for a second one waits for itself.
func single(t *testing.T, db *gorm.DB) *gorm.DB {
	t.Helper()
	pool, err := db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	return db
}

// Handle works on every kind of handle, with one connection.
func TestKindsOfHandles(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		p.life(t, single(t, p.open(&gorm.Config{})))
		p.life(t, single(t, p.open(&gorm.Config{SkipDefaultTransaction: true})))
		p.life(t, single(t, p.open(&gorm.Config{PrepareStmt: true})))
		p.life(t, p.db.Session(&gorm.Session{PrepareStmt: true}))
		require.NoError(t, p.open(&gorm.Config{}).Connection(func(db *gorm.DB) error {
			p.life(t, db)
			return nil
		}))
		plugged := single(t, p.capturing(&gorm.Config{}))
		p.life(t, plugged)
		p.life(t, plugged.Session(&gorm.Session{PrepareStmt: true}))
		require.NoError(t, plugged.Connection(func(db *gorm.DB) error {
			p.life(t, db)
			m := p.message()
			_, err := inbox.Handle(t.Context(), db, m, func(tx *gorm.DB) error {
				invoice := &Invoice{ID: m.Key.String()}
				err := tx.Create(invoice).Error
				invoice.Raise(InvoiceIssued{Invoice: invoice.ID}) // only the commit can see it
				return err
			}, p.at())
			return err
		}))
		require.Len(t, p.raised(), 1, "handles of db.Connection are captured, too")
		p.life(t, single(t, p.use(p.open(&gorm.Config{PrepareStmt: true}))))
	})
}

// In a transaction of the caller's, Handle joins it: all or nothing, and a failed attempt takes
// back only itself.
func TestHandleJoins(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		for name, db := range map[string]*gorm.DB{
			"plain": p.db, "without nested transactions": p.open(&gorm.Config{DisableNestedTransaction: true}), "prepared": p.open(&gorm.Config{PrepareStmt: true}),
			"with the plugin": p.capturing(&gorm.Config{}),
		} {
			t.Run(name, func(t *testing.T) {
				db = single(t, db)
				first, second := p.message(), p.message()
				outer := func(end error) error {
					return db.Transaction(func(tx *gorm.DB) error {
						if err := p.effect(first)(tx); err != nil {
							return err
						}
						outcome, err := inbox.Handle(t.Context(), tx, first, p.effect(first), p.at())
						require.NoError(t, err)
						require.Equal(t, inbox.Handled, outcome)
						outcome, err = inbox.Handle(t.Context(), tx, first, p.effect(first), p.at())
						require.NoError(t, err)
						require.Equal(t, inbox.Duplicate, outcome)
						_, err = inbox.Handle(t.Context(), tx, second, func(tx *gorm.DB) error {
							require.NoError(t, p.effect(second)(tx))
							require.NoError(t, p.effect(first)(tx))
							outcome, err := inbox.Handle(t.Context(), tx, p.message(), func(*gorm.DB) error { return nil }, p.at())
							require.NoError(t, err)
							require.Equal(t, inbox.Handled, outcome)
							panic("oh")
						}, p.at())
						var failed *inbox.FailedError
						require.ErrorAs(t, err, &failed)
						require.Equal(t, 1, failed.Attempts)
						return end
					})
				}
				before := p.rows()
				require.ErrorIs(t, outer(errBoom), errBoom)
				require.Equal(t, before, p.rows(), "the count is lost with the rest")
				require.NoError(t, outer(nil))
				require.Equal(t, "handled", p.row(first).Status)
				require.Equal(t, 2, p.done(first))
				require.Equal(t, "failed", p.row(second).Status)
				require.Zero(t, p.done(second))
				require.Equal(t, before+2, p.rows(), "that of the message inside is taken back, too")
			})
		}
	})
}

// A joined attempt whose message cannot be noted leaves the caller's transaction fit for use:
// PostgreSQL would refuse everything else in it.
func TestJoinedAndNotNoted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		before, after := p.message(), p.message()
		require.NoError(t, p.db.Transaction(func(tx *gorm.DB) error {
			require.NoError(t, p.effect(before)(tx))
			outcome, err := inbox.Handle(t.Context(), tx, p.message(), func(*gorm.DB) error { return nil }, inbox.WithTable("missing"))
			require.Empty(t, outcome)
			require.True(t, inbox.IsUnavailable(err), "%v", err)
			require.ErrorContains(t, err, "note the message in missing")
			require.NotContains(t, err.Error(), "savepoint")
			return p.effect(after)(tx)
		}))
		require.Equal(t, 1, p.done(before))
		require.Equal(t, 1, p.done(after))
	})
}

// A joined attempt that was cancelled is taken back, too, whatever the caller does then.
func TestJoinedAndCancelled(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.message()
		require.NoError(t, p.db.Transaction(func(tx *gorm.DB) error {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := inbox.Handle(ctx, tx, m, func(inner *gorm.DB) error { err := p.effect(m)(inner); cancel(); return err }, p.at())
			if err == nil { // it was done before anybody could notice
				return nil
			}
			require.True(t, inbox.IsUnavailable(err), "%v", err)
			return nil
		}))
		row := p.row(m)
		require.Equal(t, p.done(m) == 1, row != nil && row.Status == "handled")

		require.NoError(t, p.db.Transaction(func(tx *gorm.DB) error {
			other := p.message()
			ctx, cancel := context.WithCancel(t.Context())
			_, err := inbox.Handle(ctx, tx, other, func(inner *gorm.DB) error { _ = p.effect(other)(inner); cancel(); return errBoom }, p.at())
			require.True(t, inbox.IsUnavailable(err), "%v", err)
			m = other
			return nil
		}))
		require.Nil(t, p.row(m))
		require.Zero(t, p.done(m))
	})
}
