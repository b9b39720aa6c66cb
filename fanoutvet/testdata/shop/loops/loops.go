// Package loops raises on the variables of range loops.
package loops

import (
	"iter"
	"log/slog"

	"gorm.io/gorm"

	"example.com/shop/domain"
)

type Order = domain.Order

func direct(tx *gorm.DB, orders []Order) error {
	for _, o := range orders {
		o.Raise(domain.Paid{ID: o.ID}) // want `^o.Raise raises an event on o, a copy of an element of orders that is neither saved nor stored back: unless GORM loaded it, the event is lost; range over the index: for i := range orders \{ o := &orders\[i\] ... \}$`
	}
	return tx.Save(&orders).Error
}

func throughMethod(tx *gorm.DB, orders []Order) error {
	for _, o := range orders {
		if !o.IsOpen() || o.Total() == 0 || o.ID == "" {
			continue
		}
		if err := o.Pay(); err != nil { // want `o.Pay raises an event on o, a copy of an element of orders`
			return err
		}
		println("paid", o.ID)
	}
	return tx.Save(&orders).Error
}

func printed(orders []Order) {
	for _, o := range orders {
		o.Pay() // want `o.Pay raises`
		slog.Info("paid", "order", o)
	}
}

func once(orders []Order) { // one report for one variable
	for i, o := range orders {
		println(i)
		o.Status = "paid"
		o.Raise(domain.Paid{}) // want `o.Raise raises`
		o.Raise(domain.Shipped{})
		defer o.Pay()
	}
}

func loaded(db *gorm.DB) error {
	var orders []Order
	if err := db.Find(&orders).Error; err != nil {
		return err
	}
	return db.Transaction(func(tx *gorm.DB) error {
		for _, o := range orders {
			o.Pay() // want `o.Pay raises an event on o, a copy of an element of orders that is neither saved nor stored back: the event is sent, but the change is lost; range over the index`
		}
		for _, o := range orders {
			o.Hold()
			o.Remind() // want `o.Remind raises .* the event is sent, but the change is lost`
		}
		for _, o := range orders {
			o.Status = "reminded"
			o.Raise(domain.Placed{}) // want `o.Raise raises .* the event is sent, but the change is lost`
		}
		return tx.Save(&orders).Error
	})
}

func scanned(db *gorm.DB) {
	var orders []Order
	db.Raw("SELECT * FROM orders").Scan(&orders) // the plugin does not see them
	for _, o := range orders {
		o.Remind() // want `o.Remind raises .* unless GORM loaded it, the event is lost`
	}
	db.Save(&orders)
}

func created(db *gorm.DB) {
	orders := []Order{{ID: "1"}, {ID: "2"}}
	db.Create(&orders) // has given them no list of events
	for _, o := range orders {
		o.Remind() // want `o.Remind raises .* unless GORM loaded it, the event is lost`
	}
	db.Save(&orders)
}

func inClosures(tx *gorm.DB, orders []Order) {
	for _, o := range orders {
		_ = tx.Transaction(func(tx *gorm.DB) error {
			go func() { o.Raise(domain.Paid{}) }() // want `o.Raise raises`
			return nil
		})
	}
}

func later(orders []Order) {
	for _, o := range orders {
		defer o.PayLater()() // want `o.PayLater raises`
	}
}

func byAddress(orders []Order) {
	for _, o := range orders {
		domain.Announce(&o, "sale") // want `domain.Announce raises an event on o`
	}
	for _, o := range orders {
		(&o).Raise(domain.Paid{}) // want `\(&o\).Raise raises an event on o`
	}
	for _, o := range orders {
		domain.Tell(&o, domain.Paid{}) // want `domain.Tell raises an event on o`
	}
	for _, o := range orders {
		domain.Raiser(&o).Raise(domain.Paid{}) // want `domain.Raiser\(&o\).Raise raises an event on o`
	}
}

func deep(derived []domain.Derived, invoices []domain.Invoice, posted []domain.Posted) {
	for _, d := range derived {
		d.Raise(domain.Placed{}) // want `d.Raise raises`
	}
	for _, d := range derived {
		d.Rename("new") // want `d.Rename raises`
	}
	for _, d := range derived {
		d.Middle.Base.Aggregate.Raise(domain.Placed{}) // want `d.Middle.Base.Aggregate.Raise raises`
	}
	for _, in := range invoices {
		in.Raise(domain.Paid{}) // want `in.Raise raises`
	}
	for _, p := range posted {
		p.Order.Raise(domain.Paid{}) // want `p.Order.Raise raises an event on p`
	}
	for _, p := range posted {
		p.Post() // want `p.Post raises`
	}
}

type book struct {
	orders []Order
	fixed  [3]Order
}

func (b *book) places(all [3]Order, pointed *[3]Order) {
	for _, o := range b.orders {
		o.Pay() // want `for i := range b.orders \{ o := &b.orders\[i\]`
	}
	for n, o := range b.fixed {
		println(n)
		o.Pay() // want `o.Pay raises`
	}
	for _, o := range all {
		o.Pay() // want `o.Pay raises`
	}
	for _, o := range pointed {
		o.Pay() // want `o.Pay raises`
	}
	for _, o := range b.orders[1:] {
		o.Pay() // want `o.Pay raises`
	}
	for _, o := range b.all() {
		o.Pay() // want `keep them in a variable and range over its index, or use pointers`
	}
}

func (b *book) all() []Order { // want all:`^keeps$`
	return b.orders
}

func others(byID map[string]Order, sequence iter.Seq[Order], pairs iter.Seq2[Order, Order], channel chan Order) {
	for _, o := range byID {
		o.Pay() // want `store the copy back after it, or let the map hold pointers: map\[...\]\*Order$`
	}
	for o := range sequence {
		o.Pay() // want `range over pointers`
	}
	for a, b := range pairs {
		a.Pay() // want `a.Pay raises`
		b.Pay() // want `b.Pay raises`
	}
	for o := range channel {
		o.Pay() // want `o.Pay raises`
	}
}

// The name of the index must not be in use, and what cannot be a pointer stays as it is.
func names(orders []Order, o Order) { // want names:`^passes on, keeps$`
	i := 0
	for _, o := range orders {
		i++
		o.Pay() // want `o.Pay raises`
	}
	for _, orders := range orders {
		orders.Pay() // want `orders.Pay raises`
	}
	for _, o := range orders {
		o := o
		o.Pay() // want `o.Pay raises`
	}
	for _, o := range orders {
		o.Pay() // want `o.Pay raises`
		o := 1
		println(o)
	}
	for _, o := range orders {
		orders = orders[1:]
		o.Pay() // want `o.Pay raises`
	}
}
