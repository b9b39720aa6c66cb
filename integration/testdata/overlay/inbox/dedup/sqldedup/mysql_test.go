// This file is laid over the package when its tests are built with -overlay, as make test does: its
// driver is not among the requirements of this module.
package sqldedup_test

import (
	"testing"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

func init() {
	for name, parameters := range map[string]string{
		"mysql": "?parseTime=true", "mysql, found rows": "?clientFoundRows=true&interpolateParams=true&loc=Asia%2FTokyo",
	} {
		databases[name] = func(t *testing.T) gorm.Dialector { return mysql.Open(testenv.MySQL(t) + parameters) }
	}
}
