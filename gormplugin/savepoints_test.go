package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
)

// set and back are how the database at hand spells savepoints.
func (b *bench) set(name string) string {
	if b.dialect == outbox.SQLServer {
		return "SAVE TRANSACTION " + name
	}
	return "SAVEPOINT " + name
}

func (b *bench) back(name string) string {
	if b.dialect == outbox.SQLServer {
		return "ROLLBACK TRANSACTION " + name
	}
	return "ROLLBACK TO SAVEPOINT " + name
}

// standard leaves a case out where its spelling is not the database's.
func (b *bench) standard() { b.not(outbox.SQLServer, "it says SAVE TRANSACTION, and knows no RELEASE") }

func TestSavepoints(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"rollbacks that are undone by none": func(b *bench) {
			b.ok(b.db.Session(&gorm.Session{DisableNestedTransaction: true}).Transaction(func(tx *gorm.DB) error {
				b.goesBack(tx, func(tx *gorm.DB) { b.ok(tx.Create(order("1", "a")).Error) })
				return nil
			}))
			b.want("1: a") // without a savepoint the row is there, and so is its event
			assert.Equal(b.t, 1, b.orders())
		},
	})
}
