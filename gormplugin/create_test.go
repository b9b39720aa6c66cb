package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/outbox"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"create with a key that the database generates": func(b *bench) {
			tickets := []*Ticket{raising(&Ticket{Name: "x"}, "a"), raising(&Ticket{Name: "y"}, "b")}
			b.ok(b.db.Create(tickets).Error)
			b.want("1: a", "2: b")
			assert.Equal(b.t, "new", tickets[0].State, "filled in by the database")
		},
		"first or create that finds": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			found := order("1", "a")
			b.ok(b.db.Where("id = ?", "1").FirstOrCreate(found).Error)
			b.want()
			b.pending(found, "a")
		},
		"a conflict on a unique name that does nothing": func(b *bench) {
			b.not(outbox.MySQL, "MariaDB does not tell: see mysql_test.go")
			b.not(outbox.SQLServer, "its driver drops OnConflict unless the primary key is inserted")
			b.ok(b.db.Create(&Ticket{Name: "x"}).Error)
			second := raising(&Ticket{Name: "x"}, "a")
			b.ok(b.db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoNothing: true}).Create(second).Error)
			b.want()
			b.pending(second, "a")
		},
		"an upsert whose condition does not hold": func(b *bench) {
			b.not(outbox.MySQL, "its driver ignores the condition")
			b.not(outbox.SQLServer, "its driver ignores the condition")
			b.ok(b.db.Create(order("1")).Error)
			second := order("1", "a")
			b.ok(b.db.Clauses(clause.OnConflict{
				Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"status"}),
				Where: clause.Where{Exprs: []clause.Expression{clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: "status"}, Value: "other"}}},
			}).Create(second).Error)
			b.want()
			b.pending(second, "a")
		},
	})
}
