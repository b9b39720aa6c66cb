// Package fine has nothing to report.
package fine

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"example.com/shop/domain"
	"github.com/gorm-fanout/fanout/uow"
)

type Order = domain.Order

func pointers(orders []*Order, byID map[string]*Order) {
	for i := range orders {
		orders[i].Raise(domain.Paid{})
	}
	for _, o := range orders {
		o.Pay()
	}
	for _, o := range byID {
		o.Pay()
	}
}

func index(orders []Order) {
	for i := range orders {
		o := &orders[i]
		o.Pay()
		orders[i].Pay()
	}
}

// Saved, stored, sent, returned: others have the copy.
func elsewhere(ctx context.Context, tx *gorm.DB, orders []Order, out chan Order, byID map[string]Order) (kept []Order, err error) {
	for _, o := range orders {
		o.Pay()
		tx.Save(&o)
	}
	for _, o := range orders {
		o.Raise(domain.Paid{})
		tx.Create(o)
	}
	for _, o := range orders {
		o.Raise(domain.Paid{})
		if _, err := gorm.G[Order](tx).Where("id = ?", o.ID).Updates(ctx, o); err != nil {
			return nil, err
		}
	}
	for _, o := range orders {
		o.Pay()
		if err := gorm.G[Order](tx).Create(ctx, &o); err != nil {
			return nil, err
		}
	}
	for i, o := range orders {
		o.Pay()
		orders[i] = o
	}
	for i, o := range orders {
		o.Pay()
		orders[i].Aggregate = o.Aggregate
	}
	for id, o := range byID {
		o.Pay()
		byID[id] = o
	}
	for _, o := range orders {
		o.Pay()
		kept = append(kept, o)
	}
	for _, o := range orders {
		o.Pay()
		out <- o
	}
	for _, o := range orders {
		o.Pay()
		fmt.Println(uow.Pending(&o))
	}
	for _, o := range orders {
		o.Ship(tx)
	}
	for _, o := range orders {
		domain.Register(&o)
	}
	for _, o := range orders {
		o.Pay()
		changed := o.With("new")
		tx.Save(&changed)
	}
	for _, o := range orders {
		domain.Expand(1, &o)
	}
	for _, o := range orders {
		pay := o.Pay
		pay()
		tx.Save(pay)
	}
	for _, o := range orders {
		pay := (*Order).Pay
		pay(&o)
	}
	for _, o := range orders {
		uow.Do(ctx, tx, func(u *uow.Unit) error {
			o.Pay()
			return u.Track(&o)
		})
	}
	return kept, nil
}

// A copy that starts with a list of its own is meant to be one.
func ownList(orders []Order) int {
	total := 0
	for _, o := range orders {
		o.Aggregate = uow.Aggregate{}
		o.Pay()
		total += o.Total()
	}
	return total
}

// No one is to get the events.
func dropped(orders []Order) int {
	total := 0
	for _, o := range orders {
		o.Pay()
		uow.Discard(&o)
		total += o.Total()
	}
	return total
}

// Copies of what has raised something share its events.
func shared(orders []Order) {
	first := orders[0]
	first.Raise(domain.Placed{})
	late := first
	late.Raise(domain.Paid{})
	uow.Pending(&first)

	for i := range orders {
		orders[i].Raise(domain.Placed{})
	}
	for _, o := range orders {
		o.Raise(domain.Paid{})
	}
}

// What GORM has loaded shares its events with its copies: nothing is lost where they are not changed.
func loaded(ctx context.Context, tx *gorm.DB) error {
	var orders []Order
	if err := tx.Where("status = ?", "open").Find(&orders).Error; err != nil {
		return err
	}
	for _, o := range orders {
		o.Raise(domain.Placed{ID: o.ID})
		o.Remind()
	}
	var one Order
	tx.Preload("Lines").First(&one)
	for _, line := range one.Lines {
		line.Raise(domain.Placed{})
	}
	seen := one
	seen.Remind()
	more, err := gorm.G[Order](tx).Where("status = ?", "paid").Find(ctx)
	for _, o := range more {
		o.Remind()
	}
	var batch []Order
	tx.FindInBatches(&batch, 10, func(tx *gorm.DB, _ int) error {
		for _, o := range batch {
			o.Remind()
		}
		return tx.Save(&batch).Error
	})
	gorm.G[Order](tx).FindInBatches(ctx, 10, func(batch []Order, _ int) error {
		for _, o := range batch {
			o.Remind()
		}
		return tx.Save(&batch).Error
	})
	p, _ := gorm.G[*Order](tx).First(ctx)
	last := *p
	last.Remind()
	return err
}

// The elements are shared with nothing else, and the copies are what the code is about.
func tables() {
	for _, o := range []Order{{Status: "new"}, {Status: "paid"}} {
		if err := o.Pay(); err != nil {
			panic(err)
		}
	}
	tests := []struct {
		name  string
		order Order
	}{{"new", Order{}}}
	tests = append(tests, struct {
		name  string
		order Order
	}{})
	for _, tt := range tests {
		tt.order.Pay()
		fmt.Println(tt.name, len(tests), tt.order.Status)
	}
}

// Other methods, other types and what copies share anyway.
func unrelated(orders []Order, alarms []domain.Alarm, pointed []domain.Pointed, parcels []domain.Parcel, plain []domain.Plain) {
	for _, o := range orders {
		println(o.IsOpen(), o.Total(), o.ID, domain.Describe(&o))
	}
	for _, a := range alarms {
		a.Raise(1)
	}
	for _, p := range pointed {
		p.Raise(domain.Paid{})
	}
	for _, p := range parcels {
		p.Raise(domain.Paid{})
		p.Pay()
	}
	for _, p := range plain {
		p.Raise(1)
	}
	for _, o := range orders {
		for _, line := range o.Lines {
			println(line.SKU)
		}
		for i := range o.Lines {
			o.Lines[i].Raise(domain.Paid{}) // the copy has the same lines
		}
	}
}

func fresh(tx *gorm.DB) {
	o := Order{}
	o.Pay()
	p := *domain.NewOrder("1")
	p.Pay()
	var q Order
	tx.First(&q)
	q.Pay()
	tx.Save(&q)
}
