package gormplugin_test

import (
	"errors"
	"reflect"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/uow"
)

var errRefused = errors.New("refused")

type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

type OrderShipped struct {
	OrderID string `json:"order_id"`
}

type StockReserved struct{ SKU string }

// Happened stays inside, and What tells one from another.
type Happened struct {
	What string `json:"what"`
}

type Unregistered struct{ X int }

type Unencodable struct{ C chan int }

func catalog() *envelope.Catalog {
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published())
	envelope.Register[OrderShipped](events)
	envelope.Register[StockReserved](events, envelope.Published())
	envelope.Register[Happened](events)
	envelope.Register[Unencodable](events)
	envelope.Register[Picked](events)
	envelope.Register[Echo](events)
	ticketCatalog(events)
	return events
}

type Order struct {
	ID       string `gorm:"primaryKey;size:64"`
	Customer string
	Status   string
	uow.Aggregate

	Lines []Line
}

type Line struct {
	ID      uint   `gorm:"primaryKey"`
	OrderID string `gorm:"size:64"`
	SKU     string `gorm:"size:64"`
	uow.Aggregate
}

// Account counts its versions; its key is composite.
type Account struct {
	Bank    string `gorm:"primaryKey;size:64"`
	Number  int    `gorm:"primaryKey;autoIncrement:false"`
	Version int
	uow.Aggregate
}

// Seat has a key of two texts.
type Seat struct {
	Row   string `gorm:"primaryKey;size:64;column:seat_row"`
	Place string `gorm:"primaryKey;size:64"`
	uow.Aggregate
}

type Plain struct {
	ID   uint `gorm:"primaryKey"`
	Name string
}

// Ticket has what the database fills in: its key and a default. Its name is unique.
type Ticket struct {
	ID    uint   `gorm:"primaryKey"`
	Name  string `gorm:"size:64;uniqueIndex"`
	State string `gorm:"size:64;default:new"`
	uow.Aggregate
}

// Document is deleted softly.
type Document struct {
	ID        string `gorm:"primaryKey;size:64"`
	Title     string
	DeletedAt gorm.DeletedAt
	uow.Aggregate
}

// Buyer has one card and many invoices.
type Buyer struct {
	ID       string `gorm:"primaryKey;size:64"`
	Name     string
	Card     *Card
	Invoices []*Invoice
	uow.Aggregate
}

type Card struct {
	ID      string  `gorm:"primaryKey;size:64"`
	BuyerID *string `gorm:"size:64"`
	Number  string
	uow.Aggregate
}

// Invoice belongs to a buyer, has many tags by a join table, and notes that are polymorphic.
type Invoice struct {
	ID      string  `gorm:"primaryKey;size:64"`
	BuyerID *string `gorm:"size:64"`
	Buyer   *Buyer
	Total   int
	Tags    []*Tag `gorm:"many2many:invoice_tags"`
	Notes   []Note `gorm:"polymorphic:Owner"`
	uow.Aggregate
}

type Tag struct {
	ID   string `gorm:"primaryKey;size:64"`
	Name string
	uow.Aggregate
}

// InvoiceTag is the join table, without events.
type InvoiceTag struct {
	InvoiceID string `gorm:"primaryKey;size:64"`
	TagID     string `gorm:"primaryKey;size:64"`
}

type Note struct {
	ID        string `gorm:"primaryKey;size:64"`
	OwnerID   string `gorm:"size:64"`
	OwnerType string `gorm:"size:64"`
	Text      string
	uow.Aggregate
}

// Team has members by a join table that is an aggregate itself.
type Team struct {
	ID      string   `gorm:"primaryKey;size:64"`
	Members []*Buyer `gorm:"many2many:memberships"`
	uow.Aggregate
}

type Membership struct {
	TeamID  string `gorm:"primaryKey;size:64"`
	BuyerID string `gorm:"primaryKey;size:64"`
	Role    string
	uow.Aggregate
}

// Base is what an application's own base type looks like.
type Base struct {
	ID string `gorm:"primaryKey;size:64"`
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

// Pointed embeds the aggregate as a pointer.
type Pointed struct {
	ID   string `gorm:"primaryKey;size:64"`
	Name string
	*uow.Aggregate
}

// Hooked calls Act at every hook of GORM's.
type Hooked struct {
	ID   string `gorm:"primaryKey;size:64"`
	Note string
	Act  func(stage string, tx *gorm.DB) error `gorm:"-"`
	uow.Aggregate
}

func (h *Hooked) act(stage string, tx *gorm.DB) error {
	if h.Act == nil {
		return nil
	}
	return h.Act(stage, tx)
}

func (h *Hooked) BeforeSave(tx *gorm.DB) error   { return h.act("BeforeSave", tx) }
func (h *Hooked) BeforeCreate(tx *gorm.DB) error { return h.act("BeforeCreate", tx) }
func (h *Hooked) AfterCreate(tx *gorm.DB) error  { return h.act("AfterCreate", tx) }
func (h *Hooked) AfterSave(tx *gorm.DB) error    { return h.act("AfterSave", tx) }
func (h *Hooked) BeforeUpdate(tx *gorm.DB) error { return h.act("BeforeUpdate", tx) }
func (h *Hooked) AfterUpdate(tx *gorm.DB) error  { return h.act("AfterUpdate", tx) }
func (h *Hooked) BeforeDelete(tx *gorm.DB) error { return h.act("BeforeDelete", tx) }
func (h *Hooked) AfterDelete(tx *gorm.DB) error  { return h.act("AfterDelete", tx) }

var models = []any{
	&Order{}, &Line{}, &Account{}, &Plain{}, &Ticket{}, &Document{}, &Buyer{}, &Card{}, &Tag{}, &Note{}, &Invoice{},
	&InvoiceTag{}, &Membership{}, &Team{}, &Derived{}, &Pointed{}, &Hooked{},
}

func placed(id string) *Order {
	order := &Order{ID: id, Customer: "ada", Status: "placed"}
	order.Raise(OrderPlaced{OrderID: id})
	return order
}

// raiser is an aggregate with the Raise that it gets from uow.Aggregate.
type raiser interface {
	Raise(event any, opts ...envelope.Option)
}

// raising lets an aggregate raise a Happened for each word.
func raising[R raiser](root R, what ...string) R {
	for _, w := range what {
		root.Raise(Happened{w})
	}
	return root
}

// order is a new one that has raised what it is told.
func order(id string, what ...string) *Order { return raising(&Order{ID: id}, what...) }

// idOf is the message id of an aggregate's first pending event.
func idOf(root any) string {
	recorder, _ := journal.RecorderOf(reflect.ValueOf(root).Elem())
	return recorder.Events()[0].ID.String()
}
