// Package generics raises on copies in generic code, and of generic types.
package generics

import (
	"example.com/shop/domain"
	"github.com/gorm-fanout/fanout/uow"
)

type Keyed[K comparable] struct {
	Key K
	uow.Aggregate
}

func (k *Keyed[K]) Touch() { // want Touch:`^raises$`
	k.Raise(domain.Placed{})
	println(k.Is(k.Key))
}

func (k *Keyed[K]) Is(key K) bool { // want Is:`^keeps, passes on$`
	return k.Key == key
}

type Customer struct {
	Keyed[string]
	Name string
}

type pair[A, B any] struct {
	first  A
	second B
}

func loops(customers []Customer, keyed []Keyed[int], pairs []pair[string, Customer]) {
	for _, c := range customers {
		c.Touch() // want `c.Touch raises`
	}
	for _, k := range keyed {
		k.Touch() // want `k.Touch raises`
	}
	for _, p := range pairs {
		p.second.Touch() // want `p.second.Touch raises an event on p`
	}
}

func raisers[T any, P interface {
	*T
	domain.Raiser
}](items []T) {
	for _, item := range items {
		P(&item).Raise(domain.Paid{}) // want `P\(&item\).Raise raises an event on item, a copy of an element of items`
	}
	for i := range items {
		P(&items[i]).Raise(domain.Paid{})
	}
}

func helped[R domain.Raiser](raiser R) { // want helped:`^raises$`
	raiser.Raise(domain.Paid{})
}

func helping(orders []domain.Order) {
	for _, o := range orders {
		helped(&o) // want `helped raises an event on o`
	}
	for _, o := range orders {
		helped[*domain.Order](&o) // want `helped\[\*domain.Order\] raises an event on o`
	}
}

// Whether this Raise is an aggregate's depends on who calls.
func unknown[T any, P interface {
	*T
	Raise(event any)
}](items []T, others []interface{ Raise(any) }) {
	for _, item := range items {
		P(&item).Raise(domain.Paid{})
	}
	for _, other := range others {
		other.Raise(1)
	}
}

func values[T any](items []T) (out []T) {
	for _, item := range items {
		out = append(out, item)
	}
	return out
}
