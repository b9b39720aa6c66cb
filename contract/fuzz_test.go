package contract_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/contract"
)

// FuzzDocument: whatever is read is written again without a change, has no changes against itself,
// and can be compared with another document both ways, and made AsyncAPI of.
func FuzzDocument(f *testing.F) {
	known, err := json.Marshal(shop().describe(f))
	require.NoError(f, err)
	f.Add(known)
	for _, m := range mutations {
		text, err := json.Marshal(m.before.describe(f))
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var d, again, other contract.Document
		if json.Unmarshal(text, &d) != nil {
			return
		}
		written, err := json.Marshal(&d)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(written, &again), string(written))
		breaking, compatible, err := d.Changes(&again)
		require.NoError(t, err)
		assert.Empty(t, breaking)
		assert.Empty(t, compatible)
		require.NoError(t, json.Unmarshal(known, &other))
		_, _, _ = d.Changes(&other)
		_, _, _ = other.Changes(&d)
		_, err = d.AsyncAPI("1.0.0")
		require.NoError(t, err)
	})
}
