package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// In which shapes aggregates reach GORM, and what becomes of copies.
func TestShapes(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"the address of an array": func(b *bench) {
			orders := [2]Order{*order("1", "a"), *order("2", "b")}
			b.ok(b.db.Create(&orders).Error)
			b.want("1: a", "2: b")
			b.pending(&orders[1])
		},
		"an aggregate that embeds a pointer": func(b *bench) {
			p := raising(&Pointed{ID: "1", Aggregate: &uow.Aggregate{}}, "a")
			b.ok(b.db.Create(p).Error)
			b.want("1: a")
			b.pending(p)
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
			require.ErrorAs(b.t, b.db.Delete(batch("z")).Error, new(*gormplugin.PartialBatchError))
			b.want(`a\,b,c: x`, `a,b\,c: x`)
			if err := b.db.Clauses(clause.OnConflict{DoNothing: true}).Create(batch("y")).Error; !b.insertsReturn() {
				require.ErrorAs(b.t, err, new(*gormplugin.PartialBatchError))
				return
			}
			b.want(`a\,b,c: x`, `a,b\,c: x`, `a\,b,c: y`)
		},
	})
}
