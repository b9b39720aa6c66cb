package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

// returningAll reads all columns of slices back, of which GORM makes new elements.
func (b *bench) returningAll() *gorm.DB {
	b.t.Helper()
	b.not(outbox.SQLServer, "its driver knows no RETURNING")
	return b.db.Clauses(clause.Returning{})
}

// storedAll writes orders and lets each raise something.
func (b *bench) storedAll(ids ...string) (orders []*Order) {
	b.t.Helper()
	for _, id := range ids {
		orders = append(orders, b.stored(id, "of "+id))
	}
	return orders
}

func valuesOf(orders []*Order) (values []Order) {
	for _, o := range orders {
		values = append(values, *o)
	}
	return values
}

// Elements that GORM makes anew of the rows that a statement reads back go on with the events of
// those that they replace.
func TestSlicesThatReadAllColumns(t *testing.T) {
	t.Parallel()
	set := map[string]any{"status": "x"}
	runCases(t, map[string]func(b *bench){
		"create of values": func(b *bench) {
			orders := []Order{*order("2", "a"), *order("1", "b")}
			b.ok(b.returningAll().Create(&orders).Error)
			b.want("2: a", "1: b")
			b.pending(&orders[0])
		},
		"create of pointers": func(b *bench) {
			first, second := order("2", "a"), order("1", "b")
			orders := []*Order{first, second}
			b.ok(b.returningAll().Create(&orders).Error)
			b.want("2: a", "1: b")
			b.pending(first)
			b.pending(orders[0])
		},
		"create of one": func(b *bench) {
			orders := []Order{*order("1", "a")}
			b.ok(b.returningAll().Create(&orders).Error)
			b.want("1: a")
		},
		"create with keys that the database makes": func(b *bench) {
			tickets := []Ticket{*ticket(0, "x"), *ticket(0, "y")}
			b.ok(b.returningAll().Create(&tickets).Error)
			b.want("1: x", "2: y")
			assert.Equal(b.t, "new", tickets[1].State)
		},
		"create in batches": func(b *bench) {
			orders := []*Order{order("1", "a"), order("2", "b"), order("3", "c")}
			b.ok(b.returningAll().CreateInBatches(&orders, 2).Error)
			b.want("1: a", "2: b", "3: c")
		},
		"create, and raised afterwards on either": func(b *bench) {
			first := order("1", "a")
			orders := []*Order{first, order("2")}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.not(outbox.SQLServer, "its driver knows no RETURNING")
				b.ok(tx.Clauses(clause.Returning{}).Create(&orders).Error)
				raising(first, "old")
				raising(orders[0], "new")
				raising(orders[1], "other")
				return nil
			}))
			b.want("1: a", "1: old", "1: new", "2: other")
		},
		"create, and raised in a hook": func(b *bench) {
			act := func(h *Hooked) func(string, *gorm.DB) error {
				return func(stage string, _ *gorm.DB) error {
					if stage == "BeforeCreate" {
						raising(h, stage)
					}
					return nil
				}
			}
			hooked := []*Hooked{{ID: "1"}, {ID: "2"}}
			hooked[0].Act, hooked[1].Act = act(hooked[0]), act(hooked[1])
			b.ok(b.returningAll().Create(&hooked).Error)
			b.want("1: BeforeCreate", "2: BeforeCreate")
		},
		"create whose conflicts do nothing": func(b *bench) {
			b.not(outbox.MySQL, "it returns rows that were there, too")
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			there, added := badge(1), badge(2)
			badges := []*Badge{there, added, raising(&Badge{Name: "b3"}, "b3")}
			b.ok(b.returningAll().Clauses(ignoring).Create(&badges).Error)
			require.Len(b.t, badges, 2, "those that were inserted")
			b.want(uuidOf(2).String()+": b2", badges[1].ID.String()+": b3")
			b.pending(there, "b1")
			assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
		},
		"create whose conflicts do nothing, with keys of the application's": func(b *bench) {
			b.not(outbox.MySQL, "it returns rows that were there, too")
			b.stored("1")
			there := order("1", "a")
			orders := []*Order{there, order("2", "b")}
			b.ok(b.returningAll().Clauses(ignoring).Create(&orders).Error)
			b.want("2: b")
			b.pending(there, "a")
		},
		"an upsert": func(b *bench) {
			b.stored("1")
			orders := []Order{*order("2", "b"), *order("1", "a")}
			b.ok(b.returningAll().Save(&orders).Error)
			b.want("2: b", "1: a")
			b.pending(&orders[0])
		},
		"create by a driver that returns nothing": func(b *bench) {
			b.only(outbox.Postgres, "its driver can be told so")
			db := b.openOn(postgres.New(postgres.Config{Conn: b.pool(), WithoutReturning: true}), nil)
			b.use(db)
			orders := []*Order{order("1", "a"), order("2", "b")}
			b.ok(db.Clauses(clause.Returning{}).Create(&orders).Error)
			b.want("1: a", "2: b")
			require.Len(b.t, orders, 2)
			b.ok(db.Clauses(ignoring, clause.Returning{}).Create(&[]*Order{order("1", "c"), order("2", "d")}).Error)
			stamps := []*Stamp{raising(&Stamp{ID: "1", Code: "x"}, "a"), raising(&Stamp{ID: "2", Code: "y"}, "b")}
			b.generated()
			b.ok(db.Clauses(ignoring).Create(stamps).Error)
			b.want("1: a", "2: b", "1: a", "2: b")
		},
		"create that fails": func(b *bench) {
			b.stored("1")
			orders := []*Order{order("1", "a"), order("2", "b")}
			require.Error(b.t, b.returningAll().Create(&orders).Error)
			b.want()
		},
		"delete of values": func(b *bench) {
			orders := valuesOf(b.storedAll("2", "1"))
			b.ok(b.returningAll().Delete(&orders).Error)
			b.want("2: of 2", "1: of 1")
			require.Len(b.t, orders, 2)
			b.pending(&orders[0])
			assert.Zero(b.t, b.orders())
		},
		"delete of pointers, in another order": func(b *bench) {
			orders := b.storedAll("3", "1", "2")
			before := map[string]*Order{"3": orders[0], "1": orders[1], "2": orders[2]}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.not(outbox.SQLServer, "its driver knows no RETURNING")
				b.ok(tx.Clauses(clause.Returning{}).Delete(&orders).Error)
				for _, o := range orders {
					raising(before[o.ID], "old "+o.ID)
					raising(o, "new "+o.ID)
				}
				return nil
			}))
			for _, o := range orders {
				b.pending(o)
			}
			emitted := b.emitted()
			for _, id := range []string{"1", "2", "3"} {
				assert.Subset(b.t, emitted, []string{id + ": of " + id, id + ": old " + id, id + ": new " + id})
			}
			assert.Len(b.t, emitted, 9)
		},
		"delete of a slice of which one is gone": func(b *bench) {
			b.deletesReturn()
			orders := append(b.storedAll("2", "1"), order("gone", "not"))
			gone := orders[2]
			b.ok(b.returningAll().Delete(&orders).Error)
			b.want("2: of 2", "1: of 1")
			b.pending(gone, "not")
			assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
		},
		"delete of a slice of which all are gone": func(b *bench) {
			b.deletesReturn()
			orders := []*Order{order("1", "a"), order("2", "b")}
			b.ok(b.returningAll().Delete(&orders).Error)
			b.want()
			assert.Empty(b.t, orders)
			assert.EqualValues(b.t, 2, b.plugin.EventsLeftPending())
		},
		"soft delete": func(b *bench) {
			b.updatesReturn()
			documents := []Document{*b.filed("2", "a"), *b.filed("1", "b")}
			b.ok(b.returningAll().Delete(&documents).Error)
			b.want("2: a", "1: b")
			assert.True(b.t, documents[0].DeletedAt.Valid)
		},
		"a create that the database refuses": func(b *bench) {
			b.not(outbox.SQLServer, "its driver knows no RETURNING")
			b.not(outbox.Postgres, "it ends the transaction")
			b.stored("2")
			orders := []*Order{order("1"), order("2")}
			first := orders[0]
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				require.Error(b.t, tx.Clauses(clause.Returning{}).Create(&orders).Error)
				raising(first, "later")
				return tx.Create(order("3", "a")).Error
			}))
			b.want("3: a")
			b.pending(first, "later")
			assert.Zero(b.t, b.plugin.EventsLeftPending(), "no statement has written it")
		},
		"delete by condition into a slice": func(b *bench) {
			b.deletesReturn()
			b.storedAll("1", "2")
			var gone []Order
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Clauses(clause.Returning{}).Where("1 = 1").Delete(&gone).Error)
				raising(&gone[0], "found out")
				return nil
			}))
			b.want(gone[0].ID + ": found out")
		},
		"update of values": func(b *bench) {
			b.updatesReturn()
			orders := valuesOf(b.storedAll("2", "1"))
			b.ok(b.returningAll().Model(&orders).Updates(set).Error)
			b.want("2: of 2", "1: of 1")
			require.Len(b.t, orders, 2)
			assert.Equal(b.t, "x", orders[0].Status)
			b.pending(&orders[0])
		},
		"update of pointers of which one is gone, and raised later": func(b *bench) {
			b.updatesReturn()
			orders := append(b.storedAll("2", "1"), order("gone", "not"))
			before, gone := orders[0], orders[2]
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.not(outbox.SQLServer, "its driver knows no RETURNING")
				b.ok(tx.Model(&orders).Clauses(clause.Returning{}).Updates(set).Error)
				raising(before, "later")
				return nil
			}))
			b.want("2: of 2", "1: of 1", "2: later")
			b.pending(gone, "not")
		},
		"update of one column": func(b *bench) {
			b.updatesReturn()
			orders := b.storedAll("2", "1")
			b.ok(b.returningAll().Model(&orders).Update("status", "x").Error)
			b.want("2: of 2", "1: of 1")
		},
		"update of everything, with an aggregate that has no key": func(b *bench) {
			b.updatesReturn()
			b.storedAll("2", "1")
			orders := []Order{{}}
			b.ok(b.returningAll().Model(&orders).Where("1 = 1").Updates(set).Error)
			b.want()
			require.Len(b.t, orders, 2)
		},
		"update that sets a version": func(b *bench) {
			b.updatesReturn()
			accounts := []*Account{{Bank: "b", Number: 2, Version: 3}, {Bank: "b", Number: 1, Version: 3}}
			b.ok(b.db.Create(accounts).Error)
			raising(accounts[0], "two")
			raising(accounts[1], "one")
			b.ok(b.returningAll().Model(&accounts).Updates(map[string]any{"version": 4}).Error)
			b.want("b,2: two", "b,1: one")
			domain := part(internalOf(b.t, b.rows()[0]), "metadata", "domain")
			assert.Equal(b.t, "4.1", domain["sequence_id"])
		},
	})
	runCases(t, map[string]func(b *bench){
		"strict: a row that is gone": func(b *bench) {
			b.updatesReturn()
			orders := append(b.storedAll("1"), order("gone", "not"))
			require.ErrorAs(b.t, b.returningAll().Delete(&orders).Error, new(*gormplugin.PendingError))
			assert.Equal(b.t, 1, b.orders())
			b.want()
		},
	}, gormplugin.WithStrict())
}

// GORM puts what rows bring back into elements by their places, which an UPDATE and a DELETE do not
// keep.
func TestSlicesThatReadSomeColumns(t *testing.T) {
	t.Parallel()
	columns := func(names ...string) (returning clause.Returning) {
		for _, name := range names {
			returning.Columns = append(returning.Columns, clause.Column{Name: name})
		}
		return returning
	}
	runCases(t, map[string]func(b *bench){
		"delete that returns the keys": func(b *bench) {
			b.not(outbox.SQLServer, "its driver knows no RETURNING")
			orders := b.storedAll("3", "1", "2")
			b.ok(b.db.Clauses(columns("id")).Delete(&orders).Error)
			b.want("3: of 3", "1: of 1", "2: of 2")
			assert.Equal(b.t, []string{"3", "1", "2"}, []string{orders[0].ID, orders[1].ID, orders[2].ID})
		},
		"update that returns what is not the key": func(b *bench) {
			b.updatesReturn()
			var orders []*Order
			for _, id := range []string{"3", "1", "2"} {
				o := &Order{ID: id, Customer: "of " + id}
				b.ok(b.db.Create(o).Error)
				o.Customer = ""
				orders = append(orders, raising(o, "of "+id))
			}
			b.ok(b.db.Model(&orders).Clauses(columns("customer")).Updates(map[string]any{"status": "x"}).Error)
			b.want("3: of 3", "1: of 1", "2: of 2")
			assert.Equal(b.t, []string{"of 3", "of 1", "of 2"}, []string{orders[0].Customer, orders[1].Customer, orders[2].Customer})
		},
		"update of which one is gone": func(b *bench) {
			b.updatesReturn()
			orders := append([]*Order{order("gone", "not")}, b.storedAll("2", "1")...)
			b.ok(b.db.Model(&orders).Clauses(columns("id", "status")).Updates(map[string]any{"status": "x"}).Error)
			b.want("2: of 2", "1: of 1")
			b.pending(orders[0], "not")
			assert.Equal(b.t, "gone", orders[0].ID)
			assert.Empty(b.t, orders[0].Customer)
		},
	})
}
