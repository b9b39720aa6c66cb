// This file is laid over the package when make test builds its tests: see beside.
package pubsubconsumer

import (
	"testing"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func init() {
	beside.network = func(t testing.TB, server string) faultyNetwork { return toxic.Start(t, server) }
	beside.emulator = func(t testing.TB) string { return testenv.Optional(t, testservers.PubSubVariable) }
}
