package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// Squad has members by a join table whose rows say that a player has joined.
type Squad struct {
	ID      string    `gorm:"primaryKey;size:64"`
	Players []*Player `gorm:"many2many:enlistments"`
}

type Player struct {
	ID string `gorm:"primaryKey;size:64"`
}

type Enlistment struct {
	SquadID  string `gorm:"primaryKey;size:64"`
	PlayerID string `gorm:"primaryKey;size:64"`
	uow.Aggregate
}

func (e *Enlistment) BeforeCreate(*gorm.DB) error {
	e.Raise(Happened{"joined"})
	return nil
}

// Of the rows of a join table, GORM inserts all and has the database pass over those that are there.
func TestJoinTables(t *testing.T) {
	t.Parallel()
	prepare := func(b *bench) {
		b.ok(b.db.Migrator().AutoMigrate(&Enlistment{}))
		b.ok(b.db.SetupJoinTable(&Squad{}, "Players", &Enlistment{}))
		b.ok(b.db.Migrator().AutoMigrate(&Squad{}, &Player{}))
	}
	runCases(t, map[string]func(b *bench){
		"append beside members that are there": func(b *bench) {
			prepare(b)
			squad := &Squad{ID: "s", Players: []*Player{{ID: "a"}, {ID: "b"}}}
			b.ok(b.db.Create(squad).Error)
			b.want("s,a: joined", "s,b: joined")
			err := b.db.Model(squad).Association("Players").Append(&Player{ID: "c"})
			if b.dialect == outbox.MySQL {
				require.ErrorAs(b.t, err, new(*gormplugin.PartialBatchError))
				require.ErrorContains(b.t, err, "append to an owner that does not hold the members which are there")
				err = b.db.Model(&Squad{ID: "s"}).Association("Players").Append(&Player{ID: "c"})
			}
			b.ok(err)
			b.want("s,a: joined", "s,b: joined", "s,c: joined")
			assert.Equal(b.t, 3, b.count(&Enlistment{}))
		},
	})
}
