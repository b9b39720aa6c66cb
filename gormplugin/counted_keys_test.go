package gormplugin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// Stub has a key behind a pointer.
type Stub struct {
	ID    *int64 `gorm:"primaryKey"`
	Name  string `gorm:"size:64;uniqueIndex"`
	State string
	uow.Aggregate
}

// tickets makes aggregates that have raised their names.
func tickets(names ...string) (batch []*Ticket) {
	for _, name := range names {
		batch = append(batch, raising(&Ticket{Name: name, State: "sold"}, name))
	}
	return batch
}

// ofTheirRows fails unless each event names the row that has its name.
func (b *bench) ofTheirRows(names ...string) {
	b.t.Helper()
	var rows []Ticket
	b.ok(b.db.Find(&rows).Error)
	byName := map[string]string{}
	for _, row := range rows {
		byName[row.Name] = fmt.Sprint(row.ID)
	}
	var want []string
	for _, name := range names {
		want = append(want, byName[name]+": "+name)
	}
	assert.Equal(b.t, want, b.emitted())
}

// Where nothing comes back of an INSERT, GORM counts keys on from the first one. Whatever the batch, an
// event names the row of its aggregate, or the batch is refused.
func TestKeysThatAreCounted(t *testing.T) {
	t.Parallel()
	update := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"state"})}
	runCases(t, map[string]func(b *bench){
		"a batch": func(b *bench) {
			b.ok(b.db.Create(tickets("a", "b", "c")).Error)
			b.ofTheirRows("a", "b", "c")
		},
		"keys that the application gives beside others": func(b *bench) {
			b.not(outbox.SQLServer, "it takes no keys for a column that makes its own")
			batch := tickets("a", "b", "c", "d")
			batch[1].ID = 50
			b.ok(b.db.Create(batch).Error)
			b.ofTheirRows("a", "b", "c", "d")
			assert.EqualValues(b.t, 50, batch[1].ID)
		},
		"keys that the application gives beside others, in a unit of a session and a handle that prepare": func(b *bench) {
			b.not(outbox.SQLServer, "it takes no keys for a column that makes its own")
			db := b.open(&gorm.Config{PrepareStmt: true})
			b.use(db)
			batch := tickets("a", "b", "c")
			batch[1].ID = 50
			b.ok(uow.Do(b.t.Context(), db.Session(&gorm.Session{PrepareStmt: true}), func(u *uow.Unit) error { return u.DB.Create(batch).Error }))
			b.ofTheirRows("a", "b", "c")
		},
		"a conflict that does nothing, keys beside others": func(b *bench) {
			b.not(outbox.SQLServer, "its driver drops OnConflict")
			b.not(outbox.Postgres, "see TestBatchesThatIgnoreConflicts")
			batch := tickets("a", "b", "c", "d")
			batch[1].ID = 50
			err := b.db.Clauses(clause.OnConflict{DoNothing: true}).Create(batch).Error
			if b.dialect == outbox.MySQL && !b.at.silent { // what comes back may have been there
				require.ErrorAs(b.t, err, new(*gormplugin.PartialBatchError))
				return
			}
			b.ok(err)
			b.ofTheirRows("a", "b", "c", "d")
		},
		"a server that counts in threes": func(b *bench) {
			b.only(outbox.MySQL, "others return keys")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Exec("SET SESSION auto_increment_increment = 3").Error)
				defer tx.Exec("SET SESSION auto_increment_increment = 1")
				batch := tickets("a", "b", "c")
				b.ok(tx.Create(batch).Error)
				return tx.Create(tickets("d")).Error
			}))
			b.ofTheirRows("a", "b", "c", "d")
		},
		"an upsert of one that is there": func(b *bench) {
			b.not(outbox.SQLServer, "its driver finds rows by their keys alone")
			b.ok(b.db.Create(&[]Ticket{{Name: "a"}, {Name: "b"}, {Name: "c"}}).Error)
			for _, ticket := range tickets("b", "a") {
				b.ok(b.db.Clauses(update).Create(ticket).Error)
			}
			b.ofTheirRows("b", "a")
		},
		"an upsert of one that is there, with nothing to change": func(b *bench) {
			b.not(outbox.SQLServer, "its driver finds rows by their keys alone")
			b.ok(b.db.Create(&[]Ticket{{Name: "a"}, {Name: "b", State: "sold"}, {Name: "c"}}).Error)
			ticket := tickets("b")[0]
			b.ok(b.db.Clauses(update).Create(ticket).Error)
			b.ofTheirRows("b")
			assert.EqualValues(b.t, 2, ticket.ID)
			again := tickets("c")
			b.ok(b.db.Clauses(clause.OnConflict{Columns: update.Columns, UpdateAll: true}).Create(&again).Error)
			b.ofTheirRows("b", "c")
		},
		"an upsert of a batch": func(b *bench) {
			b.not(outbox.SQLServer, "its driver finds rows by their keys alone")
			b.ok(b.db.Create(&[]Ticket{{Name: "a"}, {Name: "b"}, {Name: "c"}}).Error)
			batch := tickets("b", "d", "a")
			b.ok(b.db.Clauses(update).Create(batch).Error)
			b.ofTheirRows("b", "d", "a")
			assert.EqualValues(b.t, 2, batch[0].ID)
		},
		"an upsert of a batch, one without a key": func(b *bench) {
			b.not(outbox.SQLServer, "its driver finds rows by their keys alone")
			b.ok(b.db.Create(&[]Ticket{{Name: "a"}, {Name: "b"}, {Name: "c"}}).Error)
			batch := tickets("b", "d", "a")
			batch[0].ID, batch[2].ID = 2, 1
			b.ok(b.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(batch).Error)
			b.ofTheirRows("b", "d", "a")
		},
		"an upsert of a batch that raises later": func(b *bench) {
			b.not(outbox.SQLServer, "its driver finds rows by their keys alone")
			b.ok(b.db.Create(&[]Ticket{{Name: "a"}, {Name: "b"}}).Error)
			batch := []*Ticket{{Name: "b", State: "sold"}, {Name: "d", State: "sold"}}
			err := b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Clauses(update).Create(batch).Error)
				raising(batch[0], "b")
				raising(batch[1], "d")
				return nil
			})
			if b.at.silent { // it is one statement, since there were no events
				require.ErrorAs(b.t, err, new(*gormplugin.PartialBatchError))
				b.want()
				return
			}
			b.ok(err)
			b.ofTheirRows("b", "d")
		},
		"an upsert of a new batch that raises later": func(b *bench) {
			b.not(outbox.SQLServer, "its driver finds rows by their keys alone")
			b.ok(b.db.Create(&[]Ticket{{Name: "a"}, {Name: "b"}}).Error)
			batch := []*Ticket{{Name: "c"}, {Name: "d"}}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Clauses(update).Create(batch).Error)
				raising(batch[0], "c")
				raising(batch[1], "d")
				return nil
			}))
			b.ofTheirRows("c", "d")
		},
		"a save of many": func(b *bench) {
			b.not(outbox.SQLServer, "its driver finds rows by their keys alone")
			b.not(outbox.Postgres, "a Save does not look for rows by their names there")
			b.not(outbox.SQLite, "a Save does not look for rows by their names there")
			b.ok(b.db.Create(&Ticket{Name: "n0"}).Error)
			var names []string
			for i := range 30 {
				names = append(names, fmt.Sprint("n", i))
			}
			batch := tickets(names...)
			saved := b.db.Save(&batch)
			b.ok(saved.Error)
			b.ofTheirRows(names...)
			assert.Less(b.t, saved.Statement.SQL.Len(), 3000, "no statement has the columns of those before it")
		},
		"an upsert of a batch by a column that the model does not call unique": func(b *bench) {
			b.only(outbox.MySQL, "others look for the columns that the clause names")
			b.at.changed.Store(true)
			b.ok(b.db.Exec("ALTER TABLE " + b.table(&Line{}) + " ADD UNIQUE (sku)").Error)
			b.ok(b.db.Create(&[]Line{{SKU: "a"}, {SKU: "b"}, {SKU: "c"}, {SKU: "d"}}).Error)
			var want []string
			for n, skus := range [][]string{{"b", "a"}, {"b", "e"}, {"f", "c"}, {"g", "h"}, {"d", "a"}} {
				var batch []*Line
				for _, sku := range skus {
					batch = append(batch, raising(&Line{SKU: sku, OrderID: fmt.Sprint("o", n)}, sku))
				}
				if n == 0 {
					b.ok(b.db.Model(&Line{}).Where("sku = ?", "a").Update("order_id", "o0").Error) // it is as it is to be
				}
				b.ok(b.db.Clauses(clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"order_id"})}).Create(batch).Error)
				for _, sku := range skus {
					var line Line
					b.ok(b.db.First(&line, "sku = ?", sku).Error)
					want = append(want, fmt.Sprint(line.ID, ": ", sku))
				}
			}
			b.want(want...)
		},
		"an upsert of a batch whose keys are pointers": func(b *bench) {
			b.only(outbox.MySQL, "others look for the columns that the clause names")
			b.tableOf(&Stub{})
			b.ok(b.db.Create(&[]Stub{{Name: "a"}, {Name: "b"}}).Error)
			batch := []*Stub{raising(&Stub{Name: "b", State: "x"}, "b"), raising(&Stub{Name: "c", State: "x"}, "c"), raising(&Stub{Name: "a", State: "x"}, "a")}
			b.ok(b.db.Clauses(clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"state"})}).Create(batch).Error)
			var want []string
			for _, name := range []string{"b", "c", "a"} {
				var row Stub
				b.ok(b.db.First(&row, "name = ?", name).Error)
				want = append(want, fmt.Sprint(*row.ID, ": ", name))
			}
			b.want(want...)
		},
		"a batch that fails in a part": func(b *bench) {
			b.only(outbox.MySQL, "others have one statement")
			b.ok(b.db.Create(&Ticket{Name: "there"}).Error)
			batch := tickets("new", "there")
			batch[0].ID = 50
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				failed := tx.Create(batch)
				require.ErrorContains(b.t, failed.Error, "1062")
				if b.at.silent {
					assert.Zero(b.t, failed.RowsAffected)
				}
				upsert := tickets("other", "long"+strings.Repeat("g", 100))
				require.ErrorContains(b.t, tx.Clauses(update).Create(upsert).Error, "1406")
				return tx.Create(tickets("last")).Error
			}))
			b.ofTheirRows("last")
			var n int64
			b.ok(b.db.Model(&Ticket{}).Count(&n).Error)
			assert.EqualValues(b.t, 2, n)
			own, db := b.own()
			require.Error(b.t, db.Create(batch).Error)
			b.ok(own.Commit())
			b.ok(b.db.Model(&Ticket{}).Count(&n).Error)
			assert.EqualValues(b.t, 2, n)
		},
		"an update of one that has no key yet": func(b *bench) {
			b.ok(b.db.Create(&Ticket{Name: "a"}).Error)
			require.ErrorContains(b.t, b.db.Model(tickets("a")[0]).Where("name = ?", "a").Update("state", "sold").Error, "has no id")
			b.want()
		},
	})
}
