package gormplugin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// Profile has a unique column beside its key.
type Profile struct {
	ID    string `gorm:"primaryKey;size:64"`
	Email string `gorm:"size:64;uniqueIndex"`
	Name  string
	uow.Aggregate
}

// Reading has a time in its key, as tables of measurements do.
type Reading struct {
	Device string    `gorm:"primaryKey;size:64"`
	At     time.Time `gorm:"primaryKey;precision:6"`
	uow.Aggregate
}

// Masked prints something else than it stores.
type Masked string

func (Masked) String() string { return "***" }

type Secretive struct {
	ID Masked `gorm:"primaryKey;size:64"`
	uow.Aggregate
}

// An event carries the id of the row that was written, whatever the struct says.
func TestIdentities(t *testing.T) {
	t.Parallel()
	byEmail := clause.OnConflict{Columns: []clause.Column{{Name: "email"}}, DoUpdates: clause.AssignmentColumns([]string{"name"})}
	taken := func(b *bench) {
		b.ok(b.db.AutoMigrate(&Profile{}))
		b.ok(b.db.Create(&Profile{ID: "1", Email: "ada", Name: "Ada"}).Error)
	}
	runCases(t, map[string]func(b *bench){
		"an upsert that finds its row by another column": func(b *bench) {
			taken(b)
			p := raising(&Profile{ID: "2", Email: "ada", Name: "Ada L."}, "renamed")
			b.ok(b.db.Clauses(byEmail).Create(p).Error)
			if b.dialect == outbox.MySQL { // which does not tell the key
				b.want()
				b.pending(p, "renamed")
				assert.Contains(b.t, b.log.String(), "events left pending")
				return
			}
			b.want("1: renamed")
			assert.Equal(b.t, "1", p.ID)
		},
		"a time in the key": func(b *bench) {
			b.ok(b.db.AutoMigrate(&Reading{}))
			at := time.Now()
			if b.dialect == outbox.MySQL { // MySQL rounds what the column has no room for; others cut it off
				at = at.Truncate(time.Microsecond)
			}
			b.ok(b.db.Create(raising(&Reading{Device: "d", At: at}, "a")).Error)
			var read Reading
			b.ok(b.db.First(&read).Error)
			b.ok(b.db.Save(raising(&read, "b")).Error)
			rows := b.rows()
			require.Len(b.t, rows, 2)
			assert.Equal(b.t, rows[0].AggregateID, rows[1].AggregateID)
		},
		"a key that prints something else": func(b *bench) {
			b.ok(b.db.AutoMigrate(&Secretive{}))
			b.ok(b.db.Create([]*Secretive{raising(&Secretive{ID: "one"}, "a"), raising(&Secretive{ID: "two"}, "b")}).Error)
			b.want("one: a", "two: b")
		},
	})
}

// A hook has failed the statement after its row was written, and the application commits all the same: the
// commit warns of the events that it leaves.
func TestHookThatFailsAfterTheWrite(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		h := raising(hooked("1", "AfterCreate", func(*Hooked, *gorm.DB) error { return errRefused }), "a")
		b.ok(b.db.Transaction(func(tx *gorm.DB) error {
			require.ErrorIs(b.t, tx.Create(h).Error, errRefused)
			return nil
		}))
		b.want()
		assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
		assert.Contains(b.t, b.log.String(), "events left pending")
	})
}

// GORM keeps the configuration that it is given, and with it the pool of the handle that was opened last.
func TestOneConfigurationForTwoHandles(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		config := b.at.config(nil)
		first, err := gorm.Open(b.at.dial(false), config)
		b.ok(err)
		second, err := gorm.Open(b.at.dial(false), config)
		b.ok(err)
		for _, db := range []*gorm.DB{first, second} {
			pool, ok := db.Statement.ConnPool.(interface{ Close() error })
			require.True(b.t, ok)
			b.t.Cleanup(func() { _ = pool.Close() })
		}
		require.ErrorContains(b.t, first.Use(b.newPlugin()), "give each gorm.Open a gorm.Config of its own")
	})
}
