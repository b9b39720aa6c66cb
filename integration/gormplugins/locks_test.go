package gormplugins_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"gorm.io/gorm"
	"gorm.io/plugin/optimisticlock"
	"gorm.io/plugin/soft_delete"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

// Locked has a version that an UPDATE compares and raises.
type Locked struct {
	ID      string `gorm:"primaryKey;size:64"`
	Status  string
	Version optimisticlock.Version
	uow.Aggregate
}

// LockedRow is the row of a Locked for GORM, without its events.
type LockedRow struct {
	ID      string `gorm:"primaryKey;size:64"`
	Status  string
	Version optimisticlock.Version
}

// Kept stays when it is deleted.
type Kept struct {
	ID      string `gorm:"primaryKey;size:64"`
	Status  string
	Deleted soft_delete.DeletedAt `gorm:"softDelete:flag"`
	uow.Aggregate
}

// A type of a column takes part in the UPDATE, and replaces the values that it was given by a map.
func TestOptimisticLock(t *testing.T) {
	t.Parallel()
	loaded := func(b *bench, id string) *Locked {
		b.ok(b.db.Create(&Locked{ID: id, Status: "new"}).Error)
		l := &Locked{}
		b.ok(b.db.First(l, "id = ?", id).Error)
		return raising(l, "a")
	}
	updates := map[string]func(db *gorm.DB, l *Locked) error{
		"save":    func(db *gorm.DB, l *Locked) error { return db.Save(l).Error },
		"updates": func(db *gorm.DB, l *Locked) error { return db.Updates(l).Error },
		"updates of a model": func(db *gorm.DB, l *Locked) error {
			return db.Model(&Locked{}).Where("id = ?", l.ID).Updates(l).Error
		},
		"updates of a model by value": func(db *gorm.DB, l *Locked) error {
			return db.Model(&Locked{}).Where("id = ?", l.ID).Updates(*l).Error
		},
		"updates of columns": func(db *gorm.DB, l *Locked) error {
			return db.Model(&Locked{}).Where("id = ?", l.ID).Select("status").UpdateColumns(l).Error
		},
		"updates of another model": func(db *gorm.DB, l *Locked) error {
			return db.Model(&LockedRow{}).Table(db.NamingStrategy.TableName("Locked")).Where("id = ?", l.ID).Updates(l).Error
		},
		"update": func(db *gorm.DB, l *Locked) error { return db.Model(l).Update("status", "x").Error },
	}
	cases := map[string]func(b *bench){}
	for name, update := range updates {
		for where, in := range map[string]func(db *gorm.DB, f func(*gorm.DB) error) error{
			"": func(db *gorm.DB, f func(*gorm.DB) error) error { return f(db) },
			"in a transaction": func(db *gorm.DB, f func(*gorm.DB) error) error {
				return db.Transaction(f)
			},
		} {
			cases[strings.TrimSpace(name+" "+where)] = func(b *bench) {
				db := b.open(&gorm.Config{})
				b.use(db)
				l := loaded(b, "1")
				l.Status = "changed"
				b.ok(in(db, func(tx *gorm.DB) error { return update(tx, l) }))
				b.want("1: a")
				assert.Empty(b.t, uow.Pending(l))
			}
		}
	}
	cases["a handle that is used again"] = func(b *bench) {
		db := b.open(&gorm.Config{})
		b.use(db)
		l := loaded(b, "1")
		handle := db.Model(&Locked{}).Where("id = ?", l.ID)
		b.ok(handle.Updates(l).Error)
		raising(l, "b")
		b.ok(handle.Updates(map[string]any{"status": "x"}).Error)
		b.want("1: a")
		assert.Len(b.t, uow.Pending(l), 1)
	}
	cases["the sequence is that of the version which the statement writes"] = func(b *bench) {
		db := b.open(&gorm.Config{})
		b.use(db)
		b.ok(db.Create(raising(&Locked{ID: "1"}, "a")).Error)
		for _, update := range []func(l *Locked) error{
			func(l *Locked) error { return db.Model(l).Update("status", "x").Error },
			func(l *Locked) error { return db.Save(l).Error },
			func(l *Locked) error { return db.Delete(l).Error },
		} {
			l := &Locked{}
			b.ok(db.First(l, "id = ?", "1").Error)
			b.ok(update(raising(l, "b")))
		}
		var payloads [][]byte
		b.ok(b.db.Table(b.outbox()).Order("id").Pluck("payload", &payloads).Error)
		var sequences []string
		for _, payload := range payloads {
			message, err := envelope.DecodeInternal(payload)
			b.ok(err)
			sequences = append(sequences, message.Metadata.Domain.SequenceID)
		}
		assert.Equal(b.t, []string{"1.1", "2.1", "3.1", ""}, sequences, "the delete writes no version")
	}
	cases["a version that another one has raised"] = func(b *bench) {
		db := b.open(&gorm.Config{})
		b.use(db)
		l := loaded(b, "1")
		b.ok(b.db.Exec("UPDATE ? SET version = 7", gorm.Expr(b.prefix+"lockeds")).Error)
		b.ok(db.Model(l).Update("status", "x").Error)
		b.want()
		assert.Len(b.t, uow.Pending(l), 1)
	}
	runCases(t, cases)
}

func TestSoftDelete(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){
		"delete": func(b *bench) {
			db := b.open(&gorm.Config{})
			b.use(db)
			k := &Kept{ID: "1"}
			b.ok(db.Create(raising(k, "a")).Error)
			b.ok(db.Delete(raising(k, "b")).Error)
			b.ok(db.Delete(raising(k, "again")).Error)
			b.want("1: a", "1: b")
			assert.Len(b.t, uow.Pending(k), 1)
		},
		"updates of a model": func(b *bench) {
			db := b.open(&gorm.Config{})
			b.use(db)
			k := &Kept{ID: "1"}
			b.ok(db.Create(k).Error)
			k.Status = "x"
			b.ok(db.Model(&Kept{}).Where("id = ?", "1").Updates(raising(k, "a")).Error)
			b.want("1: a")
		},
	}
	runCases(t, cases)
}
