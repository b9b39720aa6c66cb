package gormplugin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

func TestAssociations(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"children that have one key, of which GORM saves the first": func(b *bench) {
			for _, first := range [][]string{{"a"}, nil} {
				key := fmt.Sprint("t", len(first))
				tags := []*Tag{raising(&Tag{ID: key, Name: "x"}, first...), raising(&Tag{ID: key, Name: "x"}, "b")}
				before := b.plugin.EventsLeftPending()
				b.ok(b.db.Create([]*Invoice{{ID: "1" + key, Tags: tags[:1]}, {ID: "2" + key, Tags: tags[1:]}}).Error)
				b.pending(tags[1], "b")
				assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending()-before)
			}
			b.want("t1: a")
		},
		"children that are left out": func(b *bench) {
			line := raising(&Line{SKU: "x"}, "a")
			b.ok(b.db.Omit("Lines").Create(&Order{ID: "1", Lines: []Line{*line, {SKU: "y"}}}).Error)
			b.ok(b.db.Select("ID").Create(&Order{ID: "2", Lines: []Line{*line, {SKU: "y"}}}).Error)
			b.ok(b.db.Delete(&Order{ID: "2", Lines: []Line{*line, {SKU: "y"}}}).Error)
			tag := func() *Tag { return raising(&Tag{ID: "t", Name: "x"}, "tag") }
			b.ok(b.db.Create(&Tag{ID: "t", Name: "x"}).Error)
			b.ok(b.db.Omit("Tags.*").Create(&Invoice{ID: "i", Tags: []*Tag{tag(), tag()}}).Error)
			b.want()
			assert.Zero(b.t, b.plugin.EventsLeftPending(), "they are not saved, as it was asked")
		},
		"many to many": func(b *bench) {
			invoice := &Invoice{ID: "i", Tags: []*Tag{raising(&Tag{ID: "x"}, "a"), raising(&Tag{ID: "y"}, "b")}}
			b.ok(b.db.Create(raising(invoice, "c")).Error)
			b.want("x: a", "y: b", "i: c")
			assert.Equal(b.t, 2, b.count(&InvoiceTag{}))
		},
		"a child that was there before and nothing of it changes": func(b *bench) {
			owner := &Buyer{ID: "b"}
			b.ok(b.db.Create(owner).Error)
			b.ok(b.db.Create(raising(&Invoice{ID: "i", Buyer: raising(owner, "kept")}, "a")).Error)
			b.want("i: a") // the conflict on the owner does nothing
			b.pending(owner, "kept")
		},
	})
}

func TestAssociationMode(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"append writes the children and counts as a write of the parent": func(b *bench) {
			o := b.stored("o", "parent")
			b.ok(b.db.Model(o).Association("Lines").Append(raising(&Line{SKU: "x"}, "child")))
			b.want("o: parent", "1: child")
			b.pending(o)
			assert.Equal(b.t, 1, b.count(&Line{}))
		},
		"replace": func(b *bench) {
			invoice := &Invoice{ID: "i", Tags: []*Tag{{ID: "x"}}}
			b.ok(b.db.Create(invoice).Error)
			old := invoice.Tags[0]
			raising(old, "not written")
			b.ok(b.db.Model(raising(invoice, "replaced")).Association("Tags").Replace(raising(&Tag{ID: "y"}, "new")))
			b.want("i: replaced", "y: new")
			b.pending(old, "not written")
			assert.Equal(b.t, 1, b.count(&InvoiceTag{}))
		},
	})
}

// GORM hands nothing to a callback that could tell whose events these are.
func TestAssociationModeThatParts(t *testing.T) {
	t.Parallel()
	const warning = "Association().Delete and Clear capture no events"
	line := func(b *bench) *Order {
		o := &Order{ID: "o", Lines: []Line{{ID: 1}, {ID: 2}}}
		b.ok(b.db.Create(o).Error)
		raising(&o.Lines[0], "child")
		return raising(o, "parent")
	}
	parting := map[string]func(b *bench, tx *gorm.DB) any{
		"delete of has many": func(b *bench, tx *gorm.DB) any {
			o := line(b)
			b.ok(tx.Model(o).Association("Lines").Delete(o.Lines[0]))
			return o
		},
		"clear of has many": func(b *bench, tx *gorm.DB) any {
			o := line(b)
			b.ok(tx.Model(o).Association("Lines").Clear())
			return o
		},
		"delete of many to many": func(b *bench, tx *gorm.DB) any {
			invoice := &Invoice{ID: "i", Tags: []*Tag{{ID: "x"}}}
			b.ok(b.db.Create(invoice).Error)
			b.ok(tx.Model(raising(invoice, "parent")).Association("Tags").Delete(invoice.Tags[0]))
			return invoice
		},
	}
	cases := map[string]func(b *bench){
		"once for each table": func(b *bench) {
			o := line(b)
			b.ok(b.db.Model(o).Association("Lines").Delete(o.Lines[1]))
			b.ok(b.db.Model(o).Association("Lines").Clear())
			assert.Equal(b.t, 1, strings.Count(b.log.String(), warning))
		},
	}
	for name, part := range parting {
		cases[name] = func(b *bench) {
			root := part(b, b.db)
			b.want()
			assert.Len(b.t, uow.Pending(root), 1)
			assert.Contains(b.t, b.log.String(), warning)
		}
		cases[name+", tracked"] = func(b *bench) { // as the warning says
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return uow.Track(tx, part(b, tx)) }))
			assert.Len(b.t, b.emitted(), 1)
		}
	}
	runCases(t, cases)
}

// Children that are deleted with their owner.
func TestDeleteWithAssociations(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"has many": func(b *bench) {
			b.not(outbox.SQLServer, "a table with triggers returns nothing there")
			o := &Order{ID: "o", Lines: []Line{{ID: 1}, {ID: 2}, {ID: 3}}}
			b.ok(b.db.Create(o).Error)
			b.ok(b.db.Delete(&Line{}, 2).Error)
			raising(o, "gone")
			for i := range o.Lines {
				raising(&o.Lines[i], "removed")
			}
			b.ok(b.db.Select("Lines").Delete(o).Error)
			b.want("o: gone", "1: removed", "3: removed")
			b.pending(&o.Lines[1], "removed")
			assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
			assert.Zero(b.t, b.count(&Line{}))
		},
		"has one, and many to many, which stay": func(b *bench) {
			b.not(outbox.SQLServer, "a table with triggers returns nothing there")
			buyer := &Buyer{ID: "b", Card: &Card{ID: "c"}}
			b.ok(b.db.Create(buyer).Error)
			raising(buyer.Card, "removed")
			b.ok(b.db.Select("Card").Delete(buyer).Error)
			invoice := &Invoice{ID: "i", Tags: []*Tag{{ID: "x"}}}
			b.ok(b.db.Create(invoice).Error)
			raising(invoice.Tags[0], "kept")
			b.ok(b.db.Select("Tags").Delete(invoice).Error)
			b.want("c: removed")
			assert.Equal(b.t, 1, b.count(&Tag{}))
		},
		"nothing is deleted": func(b *bench) {
			o := &Order{ID: "o", Lines: []Line{*raising(&Line{ID: 9}, "never")}}
			b.ok(b.db.Select("Lines").Delete(o).Error)
			b.want()
			b.pending(&o.Lines[0], "never")
			assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
		},
	})
}
