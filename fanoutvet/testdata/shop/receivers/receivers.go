// Package receivers raises on value receivers.
package receivers

import (
	"gorm.io/gorm"

	"example.com/shop/domain"
	"github.com/gorm-fanout/fanout/uow"
)

type Cart struct {
	ID    string
	Items int
	uow.Aggregate
}

func (c Cart) CheckOut() { // want CheckOut:`^raises$`
	c.Raise(domain.Placed{ID: c.ID}) // want `^c.Raise raises an event on c, a value receiver and so a copy: unless GORM loaded it, the event is lost; take a pointer: func \(c \*Cart\) CheckOut$`
}

func (c Cart) Through() error { // want Through:`^changes and raises$`
	c.fill()     // want `c.fill raises an event on c, a value receiver`
	c.CheckOut() // it has a copy of its own
	return nil
}

func (c *Cart) fill() { // want fill:`^changes and raises$`
	c.Items++
	c.Raise(domain.Paid{})
}

// BeforeSave is a hook of GORM's.
func (c Cart) BeforeSave(*gorm.DB) error { // want BeforeSave:`^raises, passes on$`
	c.Raise(domain.Paid{}) // want `c.Raise raises an event on c, a value receiver`
	return nil
}

// Summed returns what it has found out: but Raise itself was meant.
func (c Cart) Summed() int { // want Summed:`^raises$`
	c.Raise(domain.Paid{}) // want `c.Raise raises`
	return c.Items
}

// Filled is a calculation with a copy.
func (c Cart) Filled() int { // want Filled:`^changes and raises$`
	c.fill()
	return c.Items
}

func (c Cart) WithPaid() Cart { // its result has the events
	c.Raise(domain.Paid{})
	return c
}

func (c Cart) Stored(tx *gorm.DB) error {
	c.Raise(domain.Paid{})
	return tx.Save(&c).Error
}

func (c Cart) Unnamed() { // want Unnamed:`^keeps$`
}

func (Cart) Nameless() { // want Nameless:`^keeps$`
}

// Payer is implemented by values.
type Payer interface{ Pay() }

func (c Cart) Pay() { // want Pay:`^raises$`
	c.Raise(domain.Paid{}) // want `c.Raise raises`
}

// Ship takes what implements it.
func Ship(shipped interface{ ShipIt() }) {}

func (c Cart) ShipIt() { // want ShipIt:`^raises$`
	c.Raise(domain.Paid{}) // want `c.Raise raises`
}

func (c Cart) AsValue() { // want AsValue:`^raises$`
	c.Raise(domain.Paid{}) // want `c.Raise raises`
}

func carts() map[string]Cart { return nil }

func (c Cart) InMap() { // want InMap:`^raises$`
	c.Raise(domain.Paid{}) // want `c.Raise raises`
}

func callers() {
	carts()["1"].InMap() // no pointer to be had
	asValue := Cart{}.AsValue
	asValue()
}

// Generic has the id that it is told.
type Generic[K comparable] struct {
	Key K
	uow.Aggregate
}

func (g Generic[K]) Touch() { // want Touch:`^raises$`
	g.Raise(domain.Paid{}) // want `take a pointer: func \(g \*Generic\[K\]\) Touch`
}
