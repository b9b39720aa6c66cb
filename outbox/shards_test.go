package outbox_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// It is part of every commit that wakes a relay.
func TestWakeUpsAllocateNothing(t *testing.T) {
	rows := []outbox.Row{
		{MessageID: uuid.New(), TargetBroker: "a", OrderingKey: strings.Repeat("k", 60)},
		{MessageID: uuid.New(), TargetBroker: "b", OrderingKey: "ü"},
		{MessageID: uuid.New(), TargetBroker: "a"},
	}
	room := make([]wakeup.WakeUp, 0, 2)
	for _, dialect := range []outbox.Dialect{outbox.Postgres, outbox.SQLServer, outbox.SQLite, outbox.MySQL} {
		inserter, err := outbox.NewInserter(dialect, outbox.DefaultTable)
		require.NoError(t, err)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = inserter.WakeUps(room, rows) }), dialect)
	}
}
