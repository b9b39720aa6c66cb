// Package parameters raises on parameters that are passed by value.
package parameters

import (
	"context"

	"gorm.io/gorm"

	"example.com/shop/domain"
)

func pay(o domain.Order) { // want pay:`^raises$`
	o.Raise(domain.Paid{ID: o.ID}) // want `^o.Raise raises an event on o, a parameter passed by value and so a copy: unless GORM loaded it, the event is lost; take a pointer: o \*domain.Order$`
}

func payAndUpdate(tx *gorm.DB, o domain.Order) error { // want payAndUpdate:`^passes on, changes and raises$`
	if err := o.Pay(); err != nil { // want `o.Pay raises an event on o, a parameter passed by value`
		return err
	}
	return tx.Model(&domain.Order{}).Where("id = ?", o.ID).Update("status", o.Status).Error
}

func callers(tx *gorm.DB, order *domain.Order) error { // saved
	pay(*order) // reported where it raises
	func(o domain.Order) {
		o.Pay() // want `o.Pay raises`
	}(*order)
	return tx.Save(order).Error
}

// what is a calculation with a copy.
func what(o domain.Order) (string, error) { // want what:`^changes and raises$`
	if err := o.Pay(); err != nil {
		return "", err
	}
	return o.Status, nil
}

func save(tx *gorm.DB, o domain.Order) error {
	o.Raise(domain.Paid{})
	return tx.Create(&o).Error
}

func update(ctx context.Context, tx *gorm.DB, o domain.Order) error {
	o.Raise(domain.Paid{})
	_, err := gorm.G[domain.Order](tx).Where("id = ?", o.ID).Updates(ctx, o)
	return err
}

func giveBack(o domain.Order) domain.Order {
	o.Raise(domain.Paid{})
	return o
}

func pointer(o *domain.Order) { // want pointer:`^raises$`
	o.Raise(domain.Paid{})
}
