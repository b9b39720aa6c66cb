package deduptest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/deduptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	deduptest.RunStore(t, func(*testing.T) dedup.Store { return deduptest.NewStore() })
	deduptest.RunTokens(t, func(*testing.T) dedup.Tokens { return deduptest.NewTokens() })
	deduptest.RunEntities(t, func(*testing.T) dedup.Entities[string] { return deduptest.NewEntities[string]() }, "one", "two")
}
