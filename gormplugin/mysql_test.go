package gormplugin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	mysqlstore "github.com/gorm-fanout/fanout/outbox/mysql"
	"github.com/gorm-fanout/fanout/uow"
)

func startMySQL(*testing.T) func(t *testing.T) place {
	return func(t *testing.T) place { return takeMySQLPlace(t, "parseTime=true&multiStatements=true") }
}

func startMySQLWithoutReturning(t *testing.T) func(t *testing.T) place {
	start := startMySQL(t)
	return func(t *testing.T) place {
		at := start(t)
		dial := at.dial
		at.silent = true
		at.dial = func(readOnly bool) gorm.Dialector {
			dialector := dial(readOnly).(*mysql.Dialector)
			dialector.DisableWithReturning = true
			return dialector
		}
		return at
	}
}

// mysqlPlaces are the places of all tests, in one database: see [postgresPlaces].
var mysqlPlaces struct {
	sync.Mutex

	dsn   string
	admin *sql.DB
	mysql bool // and not MariaDB
	drop  func() error
	made  int
	free  []place
}

// isMySQL reports whether the server is MySQL, and not MariaDB.
func isMySQL(t *testing.T) bool {
	t.Helper()
	p := &mysqlPlaces
	p.Lock()
	defer p.Unlock()
	if p.admin == nil {
		p.dsn, p.drop = testenv.MySQLUntilDropped(t)
		var err error
		p.admin, err = sql.Open("mysql", p.dsn)
		require.NoError(t, err)
		require.NoError(t, p.admin.QueryRowContext(t.Context(), "SELECT VERSION() NOT LIKE '%MariaDB%'").Scan(&p.mysql))
	}
	return p.mysql
}

// withParameters adds parameters to a DSN, which may have some.
func withParameters(dsn, parameters string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&" + parameters
	}
	return dsn + "?" + parameters
}

func takeMySQLPlace(t *testing.T, parameters string) place {
	t.Helper()
	mysqlAlone := isMySQL(t)
	p := &mysqlPlaces
	p.Lock()
	defer p.Unlock()
	var at place
	if last := len(p.free) - 1; last >= 0 {
		at, p.free = p.free[last], p.free[:last]
	} else {
		p.made++
		at = place{prefix: fmt.Sprintf("c%d_", p.made), changed: new(atomic.Bool), silent: mysqlAlone, refuses: mysqlAlone}
		at.dial = func(bool) gorm.Dialector { return mysql.Open(withParameters(p.dsn, parameters)) }
		migrateOpen(t, at, func(sqlDB *sql.DB, table string) (migrator, error) { return mysqlstore.New(sqlDB, table) })
	}
	at.dial = func(readOnly bool) gorm.Dialector {
		dsn := withParameters(p.dsn, parameters)
		if readOnly {
			dsn += "&tx_read_only=1"
		}
		return mysql.Open(dsn)
	}
	t.Cleanup(func() {
		if !t.Failed() && !at.changed.Load() {
			p.Lock()
			defer p.Unlock()
			if assert.NoError(t, emptyMySQL(p.admin, at.prefix)) {
				p.free = append(p.free, at)
			}
		}
	})
	return at
}

func emptyMySQL(db *sql.DB, prefix string) error {
	ctx := context.Background()
	rows, err := db.QueryContext(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?", len(prefix), prefix)
	if err != nil {
		return err
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		if !strings.HasSuffix(table, "_migrations") && !strings.HasSuffix(table, "_key_slots") {
			statements = append(statements, "DELETE FROM "+table, "ALTER TABLE "+table+" AUTO_INCREMENT = 1")
		}
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return rows.Err()
}

func dropMySQLPlaces() error {
	if mysqlPlaces.admin == nil {
		return nil
	}
	return errors.Join(mysqlPlaces.admin.Close(), mysqlPlaces.drop())
}

func siteOnMySQL(t *testing.T, s *site, parameters string) {
	t.Helper()
	dsn := withParameters(testenv.MySQL(t), "innodb_lock_wait_timeout=2&"+parameters)
	s.dialect, s.mysql = outbox.MySQL, isMySQL(t)
	n := 0
	s.open = func() gorm.Dialector {
		n++
		s.prefix = fmt.Sprintf("p%d_", n)
		return mysql.Open(dsn)
	}
	s.migrate = func(sqlDB *sql.DB) {
		store, err := mysqlstore.New(sqlDB, s.prefix+"outbox")
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
	}
}

// foundRows is a handle on the tables of a place that counts rows which an UPDATE leaves as they
// were.
func (b *bench) foundRows() *gorm.DB {
	b.t.Helper()
	db := b.openOn(mysql.Open(withParameters(mysqlPlaces.dsn, "parseTime=true&clientFoundRows=true")), nil)
	b.use(db)
	return db
}

// onMySQL runs cases on MySQL alone, with each way to count.
func onMySQL(t *testing.T, cases map[string]func(b *bench, db *gorm.DB)) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, takeMySQLPlace(t, "parseTime=true"), func(b *bench) { test(b, b.db) }, nil)
		})
		t.Run(name+", found rows", func(t *testing.T) {
			t.Parallel()
			run(t, takeMySQLPlace(t, "parseTime=true"), func(b *bench) { test(b, b.foundRows()) }, nil)
		})
	}
}

// Whichever way rows are counted: what an aggregate raised belongs to the statement that wrote it,
// also where that has changed nothing.
func TestMySQLCountsRows(t *testing.T) {
	t.Parallel()
	onMySQL(t, map[string]func(b *bench, db *gorm.DB){
		"an update that changes nothing": func(b *bench, db *gorm.DB) {
			o := b.stored("1")
			b.ok(db.Model(raising(o, "a")).Update("status", o.Status).Error)
			b.want("1: a")
		},
		"an update that changes nothing, and raised later": func(b *bench, db *gorm.DB) {
			o := b.stored("1")
			b.ok(db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Model(o).Update("status", o.Status).Error)
				raising(o, "a")
				return nil
			}))
			b.want("1: a")
		},
		"an update of a row that is gone": func(b *bench, db *gorm.DB) {
			o := order("1", "a")
			b.ok(db.Model(o).Update("status", "x").Error)
			b.want()
			b.pending(o, "a")
		},
		"an update of a row that somebody has removed since the snapshot": func(b *bench, db *gorm.DB) {
			o := b.stored("1")
			err := db.Transaction(func(tx *gorm.DB) error {
				var found Order
				b.ok(tx.First(&found).Error)
				b.ok(b.db.Exec("DELETE FROM " + b.table(&Order{})).Error)
				return tx.Model(raising(o, "a")).Update("status", o.Status).Error
			})
			if err != nil { // MariaDB, by its default from 11.6 on: innodb_snapshot_isolation
				require.True(b.t, uow.IsConflict(err), err)
			}
			b.want()
			b.pending(o, "a")
		},
		"a soft delete, and once more": func(b *bench, db *gorm.DB) {
			d := b.filed("1")
			b.ok(db.Delete(raising(d, "a")).Error)
			b.ok(db.Delete(raising(d, "b")).Error)
			b.want("1: a")
			b.pending(d, "b")
		},
		"an upsert that changes nothing": func(b *bench, db *gorm.DB) {
			o := b.stored("1")
			b.ok(db.Clauses(clause.OnConflict{UpdateAll: true}).Create(raising(o, "a")).Error)
			b.want("1: a")
		},
		"an upsert of a batch: one new, one changed, one as it was": func(b *bench, db *gorm.DB) {
			same, changed := b.stored("1"), b.stored("2")
			changed.Status = "changed"
			batch := []*Order{raising(same, "a"), raising(changed, "b"), order("3", "c")}
			b.ok(db.Clauses(clause.OnConflict{UpdateAll: true}).Create(batch).Error)
			b.want("1: a", "2: b", "3: c")
		},
	})
}

// Where a conflict does nothing, the number of rows tells what was inserted unless rows that were
// there are counted, or returned, as MariaDB does; then events are refused, not guessed about.
func TestMySQLConflictsThatDoNothing(t *testing.T) {
	t.Parallel()
	at := func(t *testing.T) place { return takeMySQLPlace(t, "parseTime=true") }
	nothing := clause.OnConflict{DoNothing: true}
	for name, test := range map[string]func(b *bench){
		"new": func(b *bench) {
			b.ok(b.db.Clauses(nothing).Create(order("1", "a")).Error)
			b.want("1: a")
		},
		"there": func(b *bench) {
			b.stored("1")
			o := order("1", "a")
			b.ok(b.db.Clauses(nothing).Create(o).Error)
			b.want()
			b.pending(o, "a")
		},
		"found rows": func(b *bench) {
			db := b.foundRows()
			o := order("1", "a")
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, db.Clauses(nothing).Create(o).Error, &partial)
			require.ErrorContains(b.t, partial, "gorm.ErrDuplicatedKey")
			b.want()
			b.pending(o, "a")
			assert.Zero(b.t, b.orders(), "it was rolled back")
			b.ok(db.Clauses(nothing).Create(order("2")).Error)
			assert.Equal(b.t, 1, b.orders(), "without events it does no harm")
		},
		"a key that the database makes": func(b *bench) {
			b.ok(b.db.Create(&Ticket{Name: "x"}).Error)
			second := raising(&Ticket{Name: "x"}, "a")
			err := b.db.Clauses(nothing).Create(second).Error
			if partial := new(*gormplugin.PartialBatchError); err != nil { // MariaDB, by whose RETURNING GORM reads the key
				require.ErrorAs(b.t, err, partial)
			}
			b.want()
			b.pending(second, "a")
		},
		"a modifier that ignores conflicts": func(b *bench) {
			b.ok(b.db.Create(&Ticket{ID: 5, Name: "there"}).Error)
			ignoring := b.db.Clauses(clause.Insert{Modifier: "IGNORE"}).Session(&gorm.Session{})
			batch := []*Ticket{raising(&Ticket{ID: 5, Name: "there"}, "there"), raising(&Ticket{ID: 7, Name: "new"}, "new")}
			want := []string{"7: new"}
			if err := ignoring.Create(batch).Error; err != nil { // MySQL, which returns nothing
				require.ErrorAs(b.t, err, new(*gormplugin.PartialBatchError))
				want = nil
			}
			b.want(want...)
			b.pending(batch[0], "there")
			batch = []*Ticket{raising(&Ticket{Name: "there"}, "there"), raising(&Ticket{Name: "newer"}, "newer")}
			require.ErrorAs(b.t, ignoring.Create(batch).Error, new(*gormplugin.PartialBatchError))
			b.want(want...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, at(t), test, nil)
		})
	}
}

// InnoDB rolls all of a transaction back after a deadlock, and what comes after it would be committed
// statement by statement.
func TestMySQLDeadlock(t *testing.T) {
	t.Parallel()
	run(t, takeMySQLPlace(t, "parseTime=true"), func(b *bench) {
		b.stored("1")
		b.stored("2")
		lock := func(tx *gorm.DB, id string) error {
			return tx.Model(&Order{}).Where("id = ?", id).Update("status", gorm.Expr("CONCAT(status, 'x')")).Error
		}
		firstLocked, secondLocked, swallowed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		o := order("3", "a")
		go func() {
			swallowed <- b.db.Transaction(func(tx *gorm.DB) error {
				assert.NoError(b.t, lock(tx, "1"))
				close(firstLocked)
				<-secondLocked
				assert.ErrorContains(b.t, lock(tx, "2"), "1213")
				return tx.Create(o).Error // as if nothing had happened
			})
		}()
		<-firstLocked
		b.ok(b.db.Transaction(func(tx *gorm.DB) error {
			for i := range 50 { // the one that has changed more is spared
				b.ok(tx.Exec("INSERT INTO "+b.table(&Plain{})+" (id) VALUES (?)", 1000+i).Error)
			}
			b.ok(lock(tx, "2"))
			close(secondLocked)
			return lock(tx, "1")
		}))
		err := <-swallowed
		require.ErrorContains(b.t, err, "ended the transaction")
		b.want()
		b.pending(o, "a")
	}, nil)
}

// Of two units of work that wait for each other one is broken off, and repeated.
func TestMySQLUnitsRepeat(t *testing.T) {
	t.Parallel()
	run(t, takeMySQLPlace(t, "parseTime=true"), func(b *bench) {
		first, second := b.stored("1"), b.stored("2")
		var units, met sync.WaitGroup
		met.Add(2)
		unit := func(orders ...*Order) {
			attempts := 0
			assert.NoError(b.t, uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				attempts++
				for i, o := range orders {
					if err := u.DB.Model(&Order{}).Where("id = ?", o.ID).Update("status", gorm.Expr("CONCAT(status, 'x')")).Error; err != nil {
						assert.True(b.t, uow.IsConflict(err), err)
						return err
					}
					if i == 0 && attempts == 1 {
						met.Done()
						met.Wait()
					}
				}
				return u.Publish(Happened{"done"})
			}, uow.WithRetry(5)))
		}
		units.Go(func() { unit(first, second) })
		units.Go(func() { unit(second, first) })
		units.Wait()
		b.want(": done", ": done")
	}, nil)
}

// A wait for a lock that takes too long takes back the statement alone, unless the server is set
// otherwise.
func TestMySQLLockWaitTimeout(t *testing.T) {
	t.Parallel()
	run(t, takeMySQLPlace(t, "parseTime=true&innodb_lock_wait_timeout=1"), func(b *bench) {
		b.stored("1")
		holder := b.db.Begin()
		b.ok(holder.Exec("SELECT id FROM " + b.table(&Order{}) + " WHERE id = '1' FOR UPDATE").Error)
		b.ok(b.db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(order("2", "a")).Error)
			require.ErrorContains(b.t, tx.Model(&Order{}).Where("id = '1'").Update("status", "x").Error, "1205")
			return nil
		}))
		b.ok(holder.Rollback().Error)
		b.want("2: a")
	}, nil)
}

// What a routine or a prepared text does to the transaction is asked of the server.
func TestMySQLRoutines(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		ends bool
	}{
		"a routine that commits":      {"CALL {{prefix}}ends()", true},
		"a routine that does not":     {"CALL {{prefix}}counts()", false},
		"a text that commits":         {"PREPARE s FROM 'COMMIT'; EXECUTE s", true},
		"a text that does not":        {"PREPARE s FROM 'DO 1'; EXECUTE s", false},
		"a default role":              {"SET DEFAULT ROLE NONE", true},
		"a temporary table of a kind": {"CREATE TEMPORARY TABLE passing AS SELECT 1 AS one", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := takeMySQLPlace(t, "parseTime=true&multiStatements=true")
			run(t, at, func(b *bench) {
				b.ok(b.db.Exec("CREATE PROCEDURE " + at.prefix + "ends() COMMIT").Error)
				b.ok(b.db.Exec("CREATE PROCEDURE " + at.prefix + "counts() DO 1").Error)
				at.changed.Store(true)
				text := strings.ReplaceAll(test.text, "{{prefix}}", at.prefix)
				if isMySQL(t) && strings.HasPrefix(text, "SET DEFAULT ROLE") { // it wants to be told whose
					var user string
					b.ok(b.db.Raw("SELECT CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))").Scan(&user).Error)
					text += " TO " + user
				}
				o := order("1", "a")
				err := b.db.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(o).Error)
					return tx.Exec(text).Error
				})
				assert.Equal(b.t, 1, b.orders())
				if test.ends {
					require.ErrorContains(b.t, err, "ended by an SQL statement")
					b.want()
					b.pending(o, "a")
					return
				}
				b.ok(err)
				b.want("1: a")
			}, nil)
		})
	}
}

// DDL commits what was written before it.
func TestMySQLImplicitCommit(t *testing.T) {
	t.Parallel()
	run(t, takeMySQLPlace(t, "parseTime=true"), func(b *bench) {
		o := order("1", "a")
		require.ErrorContains(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(o).Error)
			return tx.Exec("CREATE TABLE IF NOT EXISTS " + b.at.prefix + "plains (id int)").Error
		}), "ended by an SQL statement")
		assert.Equal(b.t, 1, b.orders(), "it was committed, without its event")
		b.want()
		b.pending(o, "a")
		b.ok(b.db.Save(o).Error)
		b.want("1: a")
		b.ok(b.db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(order("2", "b")).Error)
			return tx.Exec("CREATE TEMPORARY TABLE passing (id int)").Error
		}))
		b.want("1: a", "2: b")
	}, nil)
}
