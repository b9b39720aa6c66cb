// This file is laid over the package when its tests are built with -overlay, as make test does: its
// driver is not among the requirements of this module, which has to stay small for those who write.
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

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	mysqlstore "github.com/gorm-fanout/fanout/outbox/mysql"
)

func init() {
	for _, parameters := range []string{"parseTime=true", "parseTime=true&clientFoundRows=true&interpolateParams=true"} {
		databases = append(databases, database{outbox.MySQL, func(*testing.T) func(t *testing.T) place {
			return func(t *testing.T) place { return takeMySQLPlace(t, parameters) }
		}})
	}
	dialectors[outbox.MySQL] = func(conn gorm.ConnPool) gorm.Dialector { return mysql.New(mysql.Config{Conn: conn}) }
	sites["mysql"] = kind{start: func(t *testing.T, s *site) { siteOnMySQL(t, s, "parseTime=true") }}
	sites["mysql, strict, found rows"] = kind{start: func(t *testing.T, s *site) { siteOnMySQL(t, s, "parseTime=true&clientFoundRows=true") }, strict: true}
	ends = append(ends, dropMySQLPlaces)
}

// mysqlPlaces are the places of all tests, in one database: see [postgresPlaces].
var mysqlPlaces struct {
	sync.Mutex

	dsn   string
	admin *sql.DB
	drop  func() error
	made  int
	free  []place
}

func takeMySQLPlace(t *testing.T, parameters string) place {
	t.Helper()
	p := &mysqlPlaces
	p.Lock()
	defer p.Unlock()
	if p.admin == nil {
		p.dsn, p.drop = testenv.MySQLUntilDropped(t)
		var err error
		p.admin, err = sql.Open("mysql", p.dsn)
		require.NoError(t, err)
	}
	var at place
	if last := len(p.free) - 1; last >= 0 {
		at, p.free = p.free[last], p.free[:last]
	} else {
		p.made++
		at = place{prefix: fmt.Sprintf("c%d_", p.made), changed: new(atomic.Bool)}
		at.dial = func(bool) gorm.Dialector { return mysql.Open(p.dsn + "?" + parameters) }
		migrateOpen(t, at, func(sqlDB *sql.DB, table string) (migrator, error) { return mysqlstore.New(sqlDB, table) })
	}
	at.dial = func(readOnly bool) gorm.Dialector {
		dsn := p.dsn + "?" + parameters
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
	dsn := testenv.MySQL(t) + "?innodb_lock_wait_timeout=2&" + parameters
	s.dialect = outbox.MySQL
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
