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

// In which shapes aggregates reach GORM, and what becomes of copies.
func TestShapes(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a slice of values": func(b *bench) {
			orders := []Order{*order("1", "a"), *order("2", "b")}
			b.ok(b.db.Create(&orders).Error)
			b.want("1: a", "2: b")
			b.pending(&orders[0])
		},
		"a slice of values, not its address": func(b *bench) {
			orders := []Order{*order("1", "a"), *order("2", "b")}
			b.ok(b.db.Create(orders).Error)
			b.want("1: a", "2: b")
			b.pending(&orders[1])
		},
		"a slice of values that raise later": func(b *bench) {
			orders := []Order{{ID: "1"}, {ID: "2"}}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(&orders).Error)
				raising(&orders[0], "a")
				raising(&orders[1], "b")
				return nil
			}))
			b.want("1: a", "2: b")
		},
		"the address of a slice of pointers": func(b *bench) {
			b.ok(b.db.Create(&[]*Order{order("1", "a"), order("2", "b")}).Error)
			b.want("1: a", "2: b")
		},
		"an empty slice": func(b *bench) {
			require.ErrorIs(b.t, b.db.Create(&[]*Order{}).Error, gorm.ErrEmptySlice)
			b.want()
		},
		"the address of an array": func(b *bench) {
			orders := [2]Order{*order("1", "a"), *order("2", "b")}
			b.ok(b.db.Create(&orders).Error)
			b.want("1: a", "2: b")
			b.pending(&orders[1])
		},
		"an array of pointers": func(b *bench) {
			b.ok(b.db.Create([2]*Order{order("1", "a"), order("2", "b")}).Error)
			b.want("1: a", "2: b")
		},
		"a pointer to a pointer": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Create(&o).Error)
			b.want("1: a")
			b.pending(o)
		},
		"a value": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Create(*o).Error)
			b.want("1: a")
			b.pending(o)
		},
		"a value with hooks": func(b *bench) {
			h := raising(&Hooked{ID: "1"}, "a")
			require.ErrorIs(b.t, b.db.Create(*h).Error, gorm.ErrInvalidValue)
			b.want()
			b.pending(h, "a")
			assert.Zero(b.t, b.count(&Hooked{}))
		},
		"a value that is updated": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Model(*o).Update("status", "x").Error)
			b.want("1: a")
			b.pending(o)
		},
		"interfaces, where GORM takes them": func(b *bench) {
			o := b.stored("o")
			b.ok(b.db.Model(o).Association("Lines").Append([]any{raising(&Line{SKU: "x"}, "a"), raising(&Line{SKU: "y"}, "b")}...))
			b.want("1: a", "2: b")
		},
		"a nil pointer": func(b *bench) {
			var o *Order
			require.Error(b.t, b.db.Create(o).Error)
			b.want()
		},
		"a nil pointer to delete": func(b *bench) {
			var o *Order
			require.Error(b.t, b.db.Delete(o).Error)
			b.want()
		},
		"the same pointer twice": func(b *bench) {
			o := order("1", "a")
			require.Error(b.t, b.db.Create([]*Order{o, o}).Error)
			b.want()
			b.pending(o, "a")
		},
		"the same pointer twice in an upsert": func(b *bench) {
			b.only(outbox.SQLite, "the others refuse to touch one row twice")
			o := order("1", "a")
			b.ok(b.db.Clauses(clause.OnConflict{UpdateAll: true}).Create([]*Order{o, o}).Error)
			b.want("1: a")
			b.pending(o)
		},
		"the same pointer twice to delete": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Delete([]*Order{o, o}).Error)
			b.want("1: a")
			b.pending(o)
		},
		"an aggregate that embeds one that embeds one": func(b *bench) {
			d := raising(&Derived{Middle: Middle{Base: Base{ID: "1"}, Name: "x"}, Size: 2}, "a")
			b.ok(b.db.Create(d).Error)
			b.ok(b.db.Model(raising(d, "b")).Update("size", 3).Error)
			b.want("1: a", "1: b")
			assert.Equal(b.t, "Derived", *b.rows()[0].AggregateType)
		},
		"an aggregate that embeds a pointer": func(b *bench) {
			p := raising(&Pointed{ID: "1", Aggregate: &uow.Aggregate{}}, "a")
			b.ok(b.db.Create(p).Error)
			b.want("1: a")
			b.pending(p)
		},
		"an aggregate that embeds a pointer that is nil": func(b *bench) {
			require.NotPanics(b.t, func() { b.ok(b.db.Create(&Pointed{ID: "1"}).Error) })
			b.want()
			assert.Equal(b.t, 1, b.count(&Pointed{}))
		},
		"an aggregate that embeds a pointer and is read": func(b *bench) {
			b.ok(b.db.Create(&Pointed{ID: "1", Aggregate: &uow.Aggregate{}}).Error)
			var p Pointed
			b.ok(b.db.First(&p).Error)
			p.Aggregate = &uow.Aggregate{}
			b.ok(b.db.Save(raising(&p, "a")).Error)
			b.want("1: a")
		},
		"a copy shares what its original has raised": func(b *bench) {
			o := order("1", "a")
			same := *o
			raising(&same, "b")
			b.ok(b.db.Create(&same).Error)
			b.want("1: a", "1: b")
			b.pending(o)
		},
		"a copy from before the first event is on its own": func(b *bench) {
			o := &Order{ID: "1"}
			early := *o
			raising(o, "a")
			b.ok(b.db.Save(&early).Error)
			b.want()
			b.pending(o, "a")
			b.pending(&early)
		},
		"a loop over copies, of one that GORM has seen and of one that it has not": func(b *bench) {
			orders := []Order{*b.stored("1"), {ID: "2"}}
			for _, o := range orders { // the trap that Aggregate warns of: the second copy's event goes with the copy
				raising(&o, "x")
			}
			b.ok(b.db.Save(&orders).Error)
			b.want("1: x")
			b.pending(&orders[1])
		},
		"a copy in a slice and its original in one transaction": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				copies := []Order{*o}
				raising(&copies[0], "b")
				return tx.Save(&copies).Error
			}))
			b.want("1: a", "1: b")
			b.pending(o)
		},
		"read again into the same variable": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.First(o, "id = ?", "1").Error)
			b.pending(o, "a")
			b.ok(b.db.Save(o).Error)
			b.want("1: a")
		},
		"composite keys and versions": func(b *bench) {
			account := &Account{Bank: "b", Number: 7, Version: 4}
			b.ok(b.db.Create(account).Error)
			raising(account, "x", "y")
			account.Version++
			b.ok(b.db.Save(account).Error)
			b.want("b,7: x", "b,7: y")
			domain := part(internalOf(b.t, b.rows()[1]), "metadata", "domain")
			assert.Equal(b.t, "5.2", domain["sequence_id"])
			assert.Equal(b.t, "ordering::account-b,7", *b.rows()[0].OrderingKey)
		},
		"composite keys that read alike": func(b *bench) {
			b.tableOf(&Seat{})
			batch := func(what string) []*Seat {
				return []*Seat{raising(&Seat{Row: "a,b", Place: "c"}, what), raising(&Seat{Row: "a", Place: "b,c"}, what)}
			}
			b.ok(b.db.Create(batch("x")).Error)
			b.want(`a\,b,c: x`, `a,b\,c: x`)
			assert.Equal(b.t, `ordering::seat-a,b\,c`, *b.rows()[1].OrderingKey)
			b.ok(b.db.Delete(&Seat{Row: "a,b", Place: "c"}).Error)
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, b.db.Delete(batch("z")).Error, &partial)
			b.want(`a\,b,c: x`, `a,b\,c: x`)
			if err := b.db.Clauses(clause.OnConflict{DoNothing: true}).Create(batch("y")).Error; !b.insertsReturn() {
				require.ErrorAs(b.t, err, &partial)
				return
			}
			b.want(`a\,b,c: x`, `a,b\,c: x`, `a\,b,c: y`)
		},
		"composite keys with a backslash": func(b *bench) {
			b.tableOf(&Seat{})
			b.ok(b.db.Create([]*Seat{raising(&Seat{Row: `a\`, Place: "b,c"}, "x"), raising(&Seat{Row: `a,b\`, Place: "c"}, "y"), raising(&Seat{Row: "a-1", Place: "%"}, "z")}).Error)
			b.want(`a\\,b\,c: x`, `a\,b\\,c: y`, `a-1,%: z`)
		},
		"slices of aggregates of different kinds in one transaction": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create([]*Tag{raising(&Tag{ID: "t"}, "a")}).Error)
				return tx.Create(&[]Note{*raising(&Note{ID: "n"}, "b")}).Error
			}))
			b.want("t: a", "n: b")
		},
	})
}
