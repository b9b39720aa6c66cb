package storetest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// Keys that are blocked behind an abandoned row, beside other rows of the key.
var abandonTests = []test{
	{name: "KeyGoesOn", run: testAbandonKeyGoesOn},
}

// A row that has expired by its own contract blocks nothing; one behind it that was refused does.
func testAbandonKeyGoesOn(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[0], k[1], k[1])
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	s := outcome(batch, driver.Outcome{Status: outbox.StatusAbandoned})
	s.Other[0].KeyGoesOn, s.Other[3].KeyGoesOn = true, true
	s.Other[2].Status, s.Other[4].Status = outbox.StatusPending, outbox.StatusPending
	s.BlockAbandoned = true
	require.Zero(t, t.complete(s).Lost)
	assert.Equal(t, ids[1:2], t.ids("SELECT block_id FROM {t}_key_blocks"))
	assert.Equal(t, ids[4:], taken(t.claim(wake)))
}
