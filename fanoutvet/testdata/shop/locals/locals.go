// Package locals raises on variables that were given a copy.
package locals

import (
	"gorm.io/gorm"

	"example.com/shop/domain"
)

type book struct{ first domain.Order }

func copies(orders []domain.Order, p *domain.Order, byID map[string]domain.Order, b *book, order domain.Order) {
	a := orders[0]
	a.Pay() // want `^a.Pay raises an event on a, a copy of orders\[0\] that is neither saved nor stored back: unless GORM loaded it, the event is lost; take a pointer: a := &orders\[0\]$`
	c := *p
	c.Status = "paid"
	c.Raise(domain.Paid{ID: c.ID}) // want `use the pointer: c := p$`
	d, ok := byID["d"]
	println(ok)
	d.Pay() // want `store the copy back after it: byID\["d"\] = d$`
	e := b.first
	e.Pay() // want `take a pointer: e := &b.first$`
	var f = order
	f.Pay() // want `pass a pointer: order \*domain.Order$`
	var g domain.Order = orders[1]
	g.Pay() // want `g.Pay raises`
	h := def
	h.Pay() // want `take a pointer: h := &def$`
}

var def domain.Order

func replaced(orders []domain.Order) {
	a := orders[0]
	orders[0] = domain.Order{}
	a.Pay() // want `a.Pay raises`
}

func subjects(orders []domain.Order, p *domain.Order) error { // not certain: perhaps the copy is what matters
	a := orders[0]
	a.Pay()
	println(a.Status)
	b := *p
	if err := b.Pay(); err != nil {
		return err
	}
	c := *p
	for c.IsOpen() {
		c.Pay()
	}
	return nil
}

func wanted(p *domain.Order) { // Raise itself leaves no doubt
	a := *p
	a.Raise(domain.Paid{}) // want `a.Raise raises`
	println(a.Status)
}

func kept(tx *gorm.DB, orders []domain.Order, p *domain.Order) {
	a := orders[0]
	a.Pay()
	orders[0] = a
	b := *p
	b.Pay()
	*p = b
	c := orders[1]
	c.Pay()
	tx.Save(&c)
	d := orders[2]
	d.Pay()
	orders[2].Aggregate = d.Aggregate
}
