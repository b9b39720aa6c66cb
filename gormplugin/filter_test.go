package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

type (
	filterPlaced   struct{ ID string }
	filterReserved struct{ SKU string }
)

// A filter that lets nothing pass, such as one that begins with a small letter, is warned of at start-up.
func TestFilterThatNothingPasses(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("ordering")
	envelope.Register[filterPlaced](events, envelope.Published())
	envelope.Register[filterReserved](events)
	for pattern, want := range map[string]string{
		"ordering.*": "partner", "Ordering.filterReserved*": "partner", "Ordering.*": "", "*.filterPlaced.v1": "",
	} {
		routing := outbox.Routing{External: []outbox.Route{{Broker: "all"}, {Broker: "partner", Types: []string{"Billing.*", pattern}}}}
		_, log, err := openShop(t, events, routing)
		require.NoError(t, err)
		if want != "" {
			want = `msg="broker filter passes none of the published event types" broker=` + want
		}
		assert.Contains(t, log.String(), want, pattern)
		assert.Equal(t, want == "", log.String() == "", pattern)
	}
}
