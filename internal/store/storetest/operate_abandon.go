package storetest

import (
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// The rows of one message for several brokers share its id, and each waits alone.
func testSameLooseMessage(t *table) {
	t.keys(1)
	loose := t.addLoose(1)
	twin := newRow("")
	twin.MessageID, twin.TargetBroker = uuid.MustParse(t.messageID(loose[0])), "another"
	other := t.insert(twin)
	another := func(c *driver.Claim) { c.Broker = "another" }
	for _, action := range []func(admin.Filter) int{t.requeue, t.abandon} {
		t.exec("UPDATE {t} SET available_at = " + t.sql.minus("created_at", -lease))
		require.Equal(t, 1, t.deferRows())
		t.deferRows(another)
		require.Equal(t, 2, t.blocks())
		assert.Equal(t, 1, action(t.these(loose[0])))
		assert.Equal(t, 1, t.blocks())
		assert.Equal(t, 1, t.deferred())
	}
	t.pass()
	assert.Equal(t, other, taken(t.claim(another, wake)))
	t.clean()
}
