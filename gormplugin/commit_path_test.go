package gormplugin_test

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// commitRow and commitOrder are one table, without and with an aggregate.
type commitRow struct {
	ID       string `gorm:"primaryKey"`
	Customer string
	Status   string
}

func (commitRow) TableName() string { return "commit_rows" }

type commitOrder struct {
	ID       string `gorm:"primaryKey"`
	Customer string
	Status   string
	uow.Aggregate
}

func (commitOrder) TableName() string { return "commit_rows" }

// handInsert is what an application would write: two rows, of which only the columns are known.
var handInsert = "INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, priority, content_type, headers, " +
	"aggregate_type, aggregate_id, correlation_id, causation_id, tenant_id, available_at, expires_at, payload) VALUES " +
	strings.Join([]string{handRow, handRow}, ", ")

const handRow = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

// commitPath are the kinds of transaction whose costs are compared. All write one business row.
type commitPath struct {
	ctx           context.Context
	plain, plugin *gorm.DB // two handles on one database
	events        *envelope.Catalog
	routing       outbox.Routing
	id            int
	kinds         []commitKind
}

type commitKind struct {
	name string
	run  func() error
}

// newCommitPath opens two handles and puts the plugin on one of them.
func newCommitPath(t testing.TB, dialector gorm.Dialector, config gorm.Config) *commitPath {
	t.Helper()
	config.Logger = logger.Discard
	open := func() *gorm.DB {
		own := config
		db, err := gorm.Open(dialector, &own)
		require.NoError(t, err)
		return db
	}
	c := &commitPath{ctx: t.Context(), plain: open(), plugin: open(), events: catalog(), routing: outbox.Routing{External: []outbox.Route{{Broker: "partner"}}}.WithDefaults()}
	require.NoError(t, c.plugin.Use(gormplugin.New(c.events, c.routing)))
	c.kinds = []commitKind{
		{"plain", func() error { return c.write(c.plain) }},        // GORM alone
		{"other-model", func() error { return c.write(c.plugin) }}, // the plugin is there, but the model is no aggregate
		{"no-event", c.noEvent},                                    // an aggregate that has raised nothing
		{"by-hand", c.byHand},                                      // one event for two brokers, without the plugin
		{"event", c.event},                                         // the same with it
	}
	return c
}

// createBusinessTable creates the table of commitRow and commitOrder.
func createBusinessTable(t testing.TB, pool *sql.DB) {
	t.Helper()
	_, err := pool.ExecContext(t.Context(), "CREATE TABLE commit_rows (id text PRIMARY KEY, customer text, status text)")
	require.NoError(t, err)
}

func (c *commitPath) nextID() string {
	c.id++
	return "order-" + strconv.Itoa(c.id)
}

func (c *commitPath) write(db *gorm.DB) error {
	row := commitRow{ID: c.nextID(), Customer: "ada", Status: "placed"}
	return db.WithContext(c.ctx).Transaction(func(tx *gorm.DB) error { return tx.Create(&row).Error })
}

func (c *commitPath) noEvent() error {
	order := commitOrder{ID: c.nextID(), Customer: "ada", Status: "placed"}
	return c.plugin.WithContext(c.ctx).Transaction(func(tx *gorm.DB) error { return tx.Create(&order).Error })
}

func (c *commitPath) event() error {
	order := commitOrder{ID: c.nextID(), Customer: "ada", Status: "placed"}
	return c.plugin.WithContext(c.ctx).Transaction(func(tx *gorm.DB) error {
		order.Raise(OrderPlaced{OrderID: order.ID})
		return tx.Create(&order).Error
	})
}

func (c *commitPath) byHand() error {
	row := commitRow{ID: c.nextID(), Customer: "ada", Status: "placed"}
	return c.plain.WithContext(c.ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&row).Error; err != nil {
			return err
		}
		event := envelope.NewEvent(OrderPlaced{OrderID: row.ID})
		source := envelope.Source{Aggregate: "commitOrder", ID: row.ID, Sequence: 1}
		message, err := c.events.Seal(event, source, envelope.FromContext(c.ctx))
		if err != nil {
			return err
		}
		rows, err := c.routing.AppendRows(nil, message)
		if err != nil {
			return err
		}
		args := make([]any, 0, len(rows)*strings.Count(handRow, "?"))
		for i := range rows {
			r := &rows[i]
			args = append(args, r.MessageID.String(), r.TargetBroker, r.Stream, r.Type, orNull(r.OrderingKey), r.Priority, r.ContentType,
				orNull(r.Headers), r.AggregateType, r.AggregateID, orNull(r.CorrelationID), orNull(r.CausationID), orNull(r.TenantID),
				nil, nil, r.Payload)
		}
		return tx.Exec(handInsert, args...).Error
	})
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
