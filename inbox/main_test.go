package inbox_test

import (
	"testing"

	"go.uber.org/goleak"
)

// GORM starts a goroutine for each cache of prepared statements and never ends it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}
