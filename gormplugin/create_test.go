package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"create": func(b *bench) {
			order := placed("1")
			b.ok(b.db.Create(order).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
			assert.Empty(b.t, uow.Pending(order))
		},
		"create without events": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			b.want()
			assert.Equal(b.t, 1, b.orders())
		},
		"create twice, an event each time": func(b *bench) {
			first := order("1", "a")
			b.ok(b.db.Create(first).Error)
			b.ok(b.db.Create(order("2", "b")).Error)
			b.ok(b.db.Save(first).Error)
			b.want("1: a", "2: b")
		},
		"create a slice": func(b *bench) {
			b.ok(b.db.Create([]*Order{order("1", "a"), {ID: "2"}, order("3", "b", "c")}).Error)
			b.want("1: a", "3: b", "3: c")
		},
		"create in batches": func(b *bench) {
			orders := []Order{*order("1", "a"), *order("2", "b"), *order("3", "c")}
			b.ok(b.db.CreateInBatches(&orders, 2).Error)
			b.want("1: a", "2: b", "3: c")
			b.pending(&orders[2])
		},
		"create in batches of which the second fails": func(b *bench) {
			orders := []*Order{order("1", "a"), order("2", "b"), order("1", "c")}
			require.Error(b.t, b.db.CreateInBatches(orders, 2).Error)
			b.want()
			assert.Zero(b.t, b.orders())
			b.pending(orders[0], "a")
			b.pending(orders[2], "c")
		},
		"create with a batch size of the session": func(b *bench) {
			orders := []*Order{order("1", "a"), order("2", "b"), order("3", "c")}
			b.ok(b.db.Session(&gorm.Session{CreateBatchSize: 1}).Create(orders).Error)
			b.want("1: a", "2: b", "3: c")
		},
		"create with a key that the database generates": func(b *bench) {
			tickets := []*Ticket{raising(&Ticket{Name: "x"}, "a"), raising(&Ticket{Name: "y"}, "b")}
			b.ok(b.db.Create(tickets).Error)
			b.want("1: a", "2: b")
			assert.Equal(b.t, "new", tickets[0].State, "filled in by the database")
		},
		"create with a generated key and raise on it before the commit": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				ticket := &Ticket{Name: "x"}
				b.ok(tx.Create(ticket).Error)
				raising(ticket, "a")
				return nil
			}))
			b.want("1: a")
		},
		"create with selected columns": func(b *bench) {
			b.ok(b.db.Select("ID", "Customer").Create(order("1", "a")).Error)
			b.want("1: a")
		},
		"create with omitted columns": func(b *bench) {
			b.ok(b.db.Omit("Status").Create(order("1", "a")).Error)
			b.want("1: a")
		},
		"create from a map has no aggregate given": func(b *bench) {
			b.ok(b.db.Model(&Order{}).Create(map[string]any{"ID": "1"}).Error)
			b.want()
			assert.Equal(b.t, 1, b.orders())
		},
		"create from a map leaves the events of its model alone": func(b *bench) {
			template := order("9", "never")
			b.ok(b.db.Model(template).Create(map[string]any{"ID": "1"}).Error)
			b.want()
			b.pending(template, "never")
		},
		"create from maps": func(b *bench) {
			b.ok(b.db.Model(&Order{}).Create([]map[string]any{{"ID": "1"}, {"ID": "2"}}).Error)
			b.want()
			assert.Equal(b.t, 2, b.orders())
		},
		"create on a named table": func(b *bench) {
			b.ok(b.db.Table(b.table(&Order{})).Create(order("1", "a")).Error)
			b.want("1: a")
		},
		"create and return": func(b *bench) {
			b.not(outbox.SQLServer, "its driver knows no RETURNING")
			ticket := raising(&Ticket{Name: "x"}, "a")
			b.ok(b.db.Clauses(clause.Returning{}).Create(ticket).Error)
			b.want("1: a")
			b.pending(ticket)
		},
		"first or create that creates": func(b *bench) {
			order := order("1", "a")
			b.ok(b.db.Where("id = ?", "1").FirstOrCreate(order).Error)
			b.want("1: a")
		},
		"first or create that finds": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			found := order("1", "a")
			b.ok(b.db.Where("id = ?", "1").FirstOrCreate(found).Error)
			b.want()
			b.pending(found, "a")
		},
		"first or create that assigns to what it finds": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			found := &Order{}
			b.ok(b.db.Where("id = ?", "1").Assign(Order{Status: "x"}).FirstOrCreate(found).Error)
			b.want()
			raising(found, "a")
			b.ok(b.db.Save(found).Error)
			b.want("1: a")
		},
		"first or init and save": func(b *bench) {
			found := &Order{}
			b.ok(b.db.Where(Order{ID: "1"}).Attrs(Order{Status: "x"}).FirstOrInit(found).Error)
			raising(found, "a")
			b.want()
			b.ok(b.db.Save(found).Error)
			b.want("1: a")
		},
		"a conflict that does nothing": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			second := order("1", "a")
			b.ok(b.db.Clauses(clause.OnConflict{DoNothing: true}).Create(second).Error)
			b.want()
			b.pending(second, "a")
			assert.Contains(b.t, b.log.String(), "events left pending")
		},
		"a conflict on a unique name that does nothing": func(b *bench) {
			b.not(outbox.MySQL, "MariaDB does not tell: see mysql_test.go")
			b.not(outbox.SQLServer, "its driver drops OnConflict unless the primary key is inserted")
			b.ok(b.db.Create(&Ticket{Name: "x"}).Error)
			second := raising(&Ticket{Name: "x"}, "a")
			b.ok(b.db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoNothing: true}).Create(second).Error)
			b.want()
			b.pending(second, "a")
		},
		"no conflict although it would do nothing": func(b *bench) {
			b.ok(b.db.Clauses(clause.OnConflict{DoNothing: true}).Create(order("1", "a")).Error)
			b.want("1: a")
		},
		"an upsert of all columns": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			b.ok(b.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(order("1", "a")).Error)
			b.want("1: a")
			assert.Equal(b.t, 1, b.orders())
		},
		"an upsert of some columns": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			second := order("1", "a")
			second.Status = "again"
			b.ok(b.db.Clauses(clause.OnConflict{
				Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"status"}),
			}).Create(second).Error)
			b.want("1: a")
			var found Order
			b.ok(b.db.First(&found).Error)
			assert.Equal(b.t, "again", found.Status)
		},
		"an upsert of a batch, one new and one not": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			b.ok(b.db.Clauses(clause.OnConflict{UpdateAll: true}).Create([]*Order{order("1", "a"), order("2", "b")}).Error)
			b.want("1: a", "2: b")
			assert.Equal(b.t, 2, b.orders())
		},
		"an upsert whose condition does not hold": func(b *bench) {
			b.not(outbox.MySQL, "its driver ignores the condition")
			b.not(outbox.SQLServer, "its driver ignores the condition")
			b.ok(b.db.Create(order("1")).Error)
			second := order("1", "a")
			b.ok(b.db.Clauses(clause.OnConflict{
				Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"status"}),
				Where: clause.Where{Exprs: []clause.Expression{clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: "status"}, Value: "other"}}},
			}).Create(second).Error)
			b.want()
			b.pending(second, "a")
		},
		"a batch written in part": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			batch := []*Order{order("1", "a"), order("2", "b")}
			err := b.db.Clauses(clause.OnConflict{DoNothing: true}).Create(batch).Error
			b.pending(batch[0], "a")
			if b.insertsReturn() {
				b.ok(err)
				b.want("2: b")
				return
			}
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, err, &partial)
			assert.Equal(b.t, gormplugin.PartialBatchError{Aggregate: "Order", Given: 2, Affected: 1}, *partial)
			assert.Equal(b.t, 1, b.orders())
			b.want()
			b.pending(batch[1], "b")
		},
		"a batch written in part, without events": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			b.ok(b.db.Clauses(clause.OnConflict{DoNothing: true}).Create([]*Order{order("1"), order("2")}).Error)
			assert.Equal(b.t, 2, b.orders())
			b.want()
		},
		"a batch written in part, with events on one that was there": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			batch := []*Order{order("1", "a"), order("2")}
			err := b.db.Clauses(clause.OnConflict{DoNothing: true}).Create(batch).Error
			b.pending(batch[0], "a")
			b.want()
			if b.insertsReturn() {
				b.ok(err)
				assert.Equal(b.t, 2, b.orders())
				return
			}
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, err, &partial)
			assert.Equal(b.t, 1, b.orders())
		},
		"a batch written in part inside a transaction that goes on": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			batch := []*Order{order("1", "a"), order("2", "b")}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				require.Error(b.t, tx.Transaction(func(tx *gorm.DB) error {
					return tx.Model(batch).Update("status", "x").Error // of which one is not there
				}))
				return tx.Create(order("3", "c")).Error
			}))
			b.want("3: c")
			assert.Equal(b.t, 2, b.orders())
			b.pending(batch[1], "b")
		},
		"events of one's own with many rows": func(b *bench) {
			orders := make([]*Order, 300)
			want := make([]string, len(orders))
			for i := range orders {
				id := string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10))
				orders[i], want[i] = order(id, "x"), id+": x"
			}
			b.ok(b.db.Create(orders).Error)
			b.want(want...)
		},
	})
}
