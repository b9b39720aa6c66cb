package driver

import (
	"context"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A Store is all that a store package offers for one database.
type Store interface {
	Delivery
	admin.Administration
	Dialect() outbox.Dialect
	// CompareWithScratch compares the schema with one that the same server makes from the migrations and
	// forgets afterwards: all that Check compares, and the texts of expressions. The error says why it
	// could not, such as for lack of a right.
	CompareWithScratch(ctx context.Context) (differences []string, err error)
}
