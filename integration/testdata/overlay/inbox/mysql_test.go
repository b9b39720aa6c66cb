// This file is laid over the package when its tests are built with -overlay, as make test does: its
// driver is not among the requirements of this module.
package inbox_test

import (
	"database/sql"
	"testing"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/testenv"
	mysqlstore "github.com/gorm-fanout/fanout/outbox/mysql"
)

func init() {
	stores["mysql"] = func(pool *sql.DB, table string) (migrator, error) { return mysqlstore.New(pool, table) }
	for name, parameters := range map[string]string{
		"mysql": "?parseTime=true", "mysql, found rows": "?clientFoundRows=true&interpolateParams=true&loc=Asia%2FTokyo",
	} {
		databases = append(databases, database{name, func(t *testing.T) func() gorm.Dialector {
			t.Helper()
			dsn := testenv.MySQL(t) + parameters
			return func() gorm.Dialector { return mysql.Open(dsn) }
		}})
	}
}
