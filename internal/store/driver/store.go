package driver

import (
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A Store is all that a store package offers for one database.
type Store interface {
	Delivery
	admin.Administration
	Dialect() outbox.Dialect
}
