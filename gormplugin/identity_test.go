package gormplugin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
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

// idsOfRows are the ids of aggregates in the outbox.
func (b *bench) idsOfRows() (ids []string) {
	b.t.Helper()
	for _, r := range b.rows() {
		ids = append(ids, *r.AggregateID)
	}
	return ids
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
				b.pending2(p, "renamed")
				assert.Contains(b.t, b.log.String(), "events left pending")
				return
			}
			b.want("1: renamed")
			assert.Equal(b.t, "1", p.ID)
		},
		"a save of a new one whose unique column is taken": func(b *bench) {
			taken(b)
			p := raising(&Profile{ID: "2", Email: "ada", Name: "Mallory"}, "registered")
			if err := b.db.Save(p).Error; b.dialect != outbox.MySQL { // where it writes the other row
				require.Error(b.t, err)
			}
			b.want()
			b.pending2(p, "registered")
		},
		"a time in the key": func(b *bench) {
			b.ok(b.db.AutoMigrate(&Reading{}))
			b.ok(b.db.Create(raising(&Reading{Device: "d", At: time.Now()}, "a")).Error)
			var read Reading
			b.ok(b.db.First(&read).Error)
			b.ok(b.db.Save(raising(&read, "b")).Error)
			ids := b.idsOfRows()
			require.Len(b.t, ids, 2)
			assert.Equal(b.t, ids[0], ids[1])
		},
		"a key that prints something else": func(b *bench) {
			b.ok(b.db.AutoMigrate(&Secretive{}))
			b.ok(b.db.Create([]*Secretive{raising(&Secretive{ID: "one"}, "a"), raising(&Secretive{ID: "two"}, "b")}).Error)
			b.want("one: a", "two: b")
		},
	})
}

// pending2 is pending for any aggregate.
func (b *bench) pending2(aggregate any, what ...string) {
	b.t.Helper()
	var events []any
	for _, w := range what {
		events = append(events, Happened{w})
	}
	require.Equal(b.t, events, uow.Pending(aggregate))
}

// A row that is there although its statement has failed, since a hook did, and whose events are not written
// is warned of.
func TestHookThatFailsAfterTheWrite(t *testing.T) {
	t.Parallel()
	work := func(b *bench) error {
		h := raising(&Hooked{ID: "1", Act: func(stage string, _ *gorm.DB) error {
			if stage == "AfterCreate" {
				return errRefused
			}
			return nil
		}}, "a")
		return b.db.Transaction(func(tx *gorm.DB) error {
			require.ErrorIs(b.t, tx.Create(h).Error, errRefused)
			return nil
		})
	}
	onEach(t, func(b *bench) {
		b.ok(work(b))
		b.want()
		assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
		assert.Contains(b.t, b.log.String(), "events left pending")
	})
	onEach(t, func(b *bench) {
		require.ErrorAs(b.t, work(b), new(*gormplugin.PendingError))
	}, gormplugin.WithStrict())
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
