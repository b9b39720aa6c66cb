package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/uow"
)

// Posting belongs to a journal, which is read by a join with it.
type Posting struct {
	ID        string  `gorm:"primaryKey;size:64"`
	JournalID *string `gorm:"size:64"`
	Journal   *Journal
	ParentID  *string `gorm:"size:64"`
	Parent    *Posting
	uow.Aggregate
}

type Journal struct {
	ID      string `gorm:"primaryKey;size:64"`
	Version int
	uow.Aggregate
}

// A message has a sequence where it is above that of those before: a consumer that drops what is not above
// the last one it has seen must drop nothing else.
func TestSequences(t *testing.T) {
	t.Parallel()
	opened := func(b *bench) *Account {
		account := raising(&Account{Bank: "b", Number: 1, Version: 1}, "opened")
		b.ok(b.db.Create(account).Error)
		return account
	}
	save := func(b *bench, account *Account, version int) {
		account.Version = version
		b.ok(b.db.Save(raising(account, "saved")).Error)
	}
	runCases(t, map[string]func(b *bench){
		"a model without a version": func(b *bench) {
			o := placed("1")
			b.ok(b.db.Create(o).Error)
			b.ok(b.db.Save(raising(o, "again")).Error)
			assert.Equal(b.t, []any{nil, nil}, b.sequences())
			partner := b.rows()[1]
			require.Equal(b.t, "partner", partner.TargetBroker)
			assert.NotContains(b.t, string(partner.Payload), "sequence")
		},
		"a version that stands, or goes back": func(b *bench) {
			account := opened(b)
			save(b, account, 1)
			save(b, account, 2)
			save(b, account, 2)
			save(b, account, 1)
			assert.Equal(b.t, []any{"1.1", nil, "2.1", nil, nil}, b.sequences())
		},
		"loaded by another request": func(b *bench) {
			opened(b)
			load := func() *Account {
				account := &Account{}
				b.ok(b.db.First(account).Error)
				return account
			}
			save(b, load(), 1)
			save(b, load(), 2)
			save(b, load(), 2)
			save(b, load(), 3)
			assert.Equal(b.t, []any{"1.1", nil, "2.1", nil, "3.1"}, b.sequences())
		},
		"a version that the statement does not write": func(b *bench) {
			account := opened(b)
			account.Version = 2
			b.ok(b.db.Model(raising(account, "a")).Update("bank", "b").Error)
			b.ok(b.db.Model(raising(account, "b")).Select("bank").Updates(account).Error)
			b.ok(b.db.Model(raising(account, "c")).Omit("version").Updates(account).Error)
			assert.Equal(b.t, []any{"1.1", nil, nil, nil}, b.sequences())
		},
		"an upsert of a value that was read by other SQL": func(b *bench) {
			opened(b)
			var account Account
			b.ok(b.db.Raw("SELECT bank, number, version FROM " + b.table(&Account{})).Scan(&account).Error)
			upsert := func(account *Account) {
				b.ok(b.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(raising(account, "put")).Error)
			}
			upsert(&account)
			account.Version = 2
			upsert(&account)
			upsert(&Account{Bank: "b", Number: 2, Version: 1}) // which may be there
			b.ok(b.db.Save(raising(&Account{Bank: "b", Number: 3, Version: 1}, "saved")).Error)
			assert.Equal(b.t, []any{"1.1", nil, nil, nil, "1.1"}, b.sequences())
		},
		"loaded by a join": func(b *bench) {
			b.tableOf(&Journal{})
			b.tableOf(&Posting{})
			parent := &Posting{ID: "p", Journal: raising(&Journal{ID: "l", Version: 1}, "opened")}
			b.ok(b.db.Create(&Posting{ID: "q", Parent: parent}).Error)
			var posting Posting
			b.ok(b.db.Joins("Journal").First(&posting, "?.id = ?", clause.Table{Name: clause.CurrentTable}, "p").Error)
			posting.Journal.Version = 2
			b.ok(b.db.Model(raising(posting.Journal, "a")).Updates(posting.Journal).Error)
			var child Posting
			b.ok(b.db.Joins("Parent").Joins("Parent.Journal").First(&child, "?.id = ?", clause.Table{Name: clause.CurrentTable}, "q").Error)
			child.Parent.Journal.Version = 3
			b.ok(b.db.Model(raising(child.Parent.Journal, "b")).Updates(child.Parent.Journal).Error)
			assert.Equal(b.t, []any{"1.1", "2.1", "3.1"}, b.sequences())
		},
	})
}
