package gormplugin_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

type filterPlaced struct{ ID string }

type filterReserved struct{ SKU string }

// A filter that lets nothing pass, such as one with a small letter in front, is warned of at
// start-up; nothing would ever tell otherwise.
func TestFilterThatNothingPasses(t *testing.T) {
	t.Parallel()
	for pattern, warned := range map[string]bool{
		"ordering.*": true, "Ordering.filterReserved*": true, "Ordering.*": false, "*.filterPlaced.v1": false,
	} {
		events := envelope.NewCatalog("ordering")
		envelope.Register[filterPlaced](events, envelope.Published())
		envelope.Register[filterReserved](events)
		db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "shop.db")), &gorm.Config{})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		defer pool.Close()
		var log bytes.Buffer
		routing := outbox.Routing{External: []outbox.Route{{Broker: "all"}, {Broker: "partner", Types: []string{"Billing.*", pattern}}}}
		require.NoError(t, db.Use(gormplugin.New(events, routing, gormplugin.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))))
		const want = `msg="broker filter passes none of the published event types" broker=partner`
		if warned {
			assert.Contains(t, log.String(), want, pattern)
			assert.Contains(t, log.String(), "types=[Ordering.filterPlaced.v1]")
		} else {
			assert.Empty(t, log.String(), pattern)
		}
	}
}
