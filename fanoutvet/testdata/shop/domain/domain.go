// Package domain has the aggregates of a shop. What is known of its functions reaches the packages that import it as facts.
package domain

import (
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

type (
	Placed  struct{ ID string }
	Paid    struct{ ID string }
	Shipped struct{ ID string }
)

type Order struct {
	ID, Status string
	Lines      []Line
	uow.Aggregate
}

type Line struct {
	SKU string
	uow.Aggregate
}

func NewOrder(id string) *Order { // no fact: it is given nothing
	o := &Order{ID: id}
	o.Raise(Placed{id})
	return o
}

func (o *Order) Pay() error { // want Pay:`^changes and raises$`
	o.Status = "paid"
	o.settle()
	return nil
}

func (o *Order) settle() { // want settle:`^raises$`
	if o.Status == "paid" {
		o.Raise(Paid{o.ID})
	}
}

// PayLater raises when its function is called.
func (o *Order) PayLater() func() { // want PayLater:`^raises$`
	return func() { o.Raise(Paid{o.ID}) }
}

func (o *Order) Remind() { // want Remind:`^raises$`
	o.Raise(Placed{o.ID})
}

func (o *Order) Hold() { // want Hold:`^changes$`
	o.Status = "held"
}

func (o *Order) IsOpen() bool { // want IsOpen:`^keeps$`
	return o != nil && o.Status == "open"
}

func (o Order) Total() int { // want Total:`^keeps$`
	return len(o.Lines)
}

func (o Order) With(status string) Order { // no fact: the result is the order
	o.Status = status
	return o
}

func (o *Order) Ship(tx *gorm.DB) error { // no fact: it may save itself, and does
	o.Raise(Shipped{o.ID})
	return tx.Save(o).Error
}

func (o *Order) Forget() { // no fact: what has been raised is gone
	o.Raise(Paid{o.ID})
	o.Aggregate = uow.Aggregate{}
}

// Ping and Pong call each other.
func (o *Order) Ping(n int) { // want Ping:`^raises, passes on$`
	if n > 0 {
		o.Pong(n - 1)
	}
}

func (o *Order) Pong(n int) { // want Pong:`^raises, passes on$`
	o.Raise(Placed{o.ID})
	o.Ping(n)
}

func Announce(o *Order, text string) { // want Announce:`^raises, passes on$`
	o.Raise(Placed{text})
}

// Raiser is an aggregate, whichever.
type Raiser interface {
	Raise(event any, options ...envelope.Option)
}

func Tell(raiser Raiser, event any) { // want Tell:`^raises, passes on$`
	raiser.Raise(event)
}

func Describe(o *Order) string { // want Describe:`^keeps$`
	return o.ID + o.Status
}

var seen []*Order

func Register(o *Order) { // no fact: it keeps a pointer
	o.Raise(Placed{o.ID})
	seen = append(seen, o)
}

func Expand(depth int, orders ...*Order) { // no fact: they come in a slice
	for _, o := range orders {
		o.Raise(Placed{o.ID})
	}
}

// Base is what an application's own base type looks like.
type Base struct {
	ID string
	uow.Aggregate
}

type Middle struct {
	Base
	Name string
}

// Derived embeds what embeds an aggregate.
type Derived struct {
	Middle
	Size int
}

func (m *Middle) Rename(name string) { // want Rename:`^changes and raises, passes on$`
	m.Name = name
	m.Base.Raise(Placed{m.ID})
}

// Invoice has a Raise of its own, which hides the aggregate's and calls it.
type Invoice struct {
	ID string
	uow.Aggregate
}

func (i *Invoice) Raise(event Paid) { // want Raise:`^raises, passes on$`
	i.Aggregate.Raise(event)
}

// Alarm has a Raise that has nothing to do with its aggregate.
type Alarm struct {
	Level int
	uow.Aggregate
}

func (a *Alarm) Raise(by int) { // want Raise:`^changes, passes on$`
	a.Level += by
}

// Posted has its aggregate in a field with a name.
type Posted struct {
	Number int
	Order  Order `gorm:"embedded"`
}

func (p *Posted) Post() { // want Post:`^raises$`
	p.Order.Raise(Shipped{p.Order.ID})
}

// Pointed and Parcel share their aggregate with their copies.
type Pointed struct {
	ID string
	*uow.Aggregate
}

type Parcel struct {
	*Order
	Weight int
}

// Plain is no aggregate.
type Plain struct{ ID string }

func (p Plain) Raise(any) {}
