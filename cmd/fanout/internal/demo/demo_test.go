package demo

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/outbox"
)

// A library that Pub/Sub links starts a goroutine when it is loaded.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

func TestDemo(t *testing.T) {
	t.Parallel()
	var live bytes.Buffer
	result, err := Run(t.Context(), Config{Orders: 60, Live: &live})
	require.NoError(t, err)
	assert.Equal(t, 60, result.Orders)
	assert.Equal(t, 150, result.Events, "two events per order, and one more for every second")
	assert.EqualValues(t, 150, result.Rows["default"][outbox.StatusPublished])
	assert.EqualValues(t, 90, result.Rows["partner"][outbox.StatusPublished])
	assert.Equal(t, map[string]int{"default": 150, "partner": 90}, result.Delivered)
	assert.Zero(t, result.Lost)

	var internal, external struct {
		Metadata struct {
			Headers struct{ ID string }
			Domain  map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(result.InternalExample, &internal))
	require.NoError(t, json.Unmarshal(result.ExternalExample, &external))
	assert.Equal(t, internal.Metadata.Headers.ID, external.Metadata.Headers.ID)
	assert.Contains(t, internal.Metadata.Domain, "priority")
	assert.NotContains(t, external.Metadata.Domain, "priority")
	for _, text := range []string{"closed its port", "is back after", "0 lost", "Next:"} {
		assert.Contains(t, live.String(), text)
	}
	assert.NotContains(t, live.String(), "\x1b", "no control characters where there is no terminal")
}

// The comparison must be able to fail.
func TestLedger(t *testing.T) {
	t.Parallel()
	rows := []row{
		{MessageID: "1", TargetBroker: "default", Status: outbox.StatusPublished},
		{MessageID: "1", TargetBroker: "partner", Status: outbox.StatusPublished},
		{MessageID: "2", TargetBroker: "default", Status: outbox.StatusAbandoned},
	}
	arrived := map[string][]arrival{"default": {{id: "1"}, {id: "1"}}, "partner": {{id: "1", data: []byte("{}")}}}
	result := newResult(1, rows, arrived)
	assert.Equal(t, 1, result.Lost)
	assert.Equal(t, 1, result.Duplicates)
	assert.Equal(t, 2, result.Events)
	assert.JSONEq(t, "{}", string(result.ExternalExample))
}
