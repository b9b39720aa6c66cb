package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var diagnoseTests = []test{
	{name: "BeforeAndAfterTheMigration", run: testDiagnose, bare: true},
}

// A diagnosis needs no tables, and changes nothing.
func testDiagnose(t *table) {
	for range 2 {
		d, err := t.Store.Diagnose(t.Context())
		require.NoError(t, err)
		require.NoError(t, d.Err())
		assert.Regexp(t, `^\S.* \d+`, d.Server)
		assert.NotEmpty(t, d.Settings)
		assert.Less(t, d.ClockOffset.Abs(), 10*time.Minute)
		assert.GreaterOrEqual(t, d.ClockError, time.Duration(0))
		_, err = t.Store.Migrate(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, t.Store.Check(t.Context()))
}
