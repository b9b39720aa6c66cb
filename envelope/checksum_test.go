package envelope_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// The checksum is that of the canonical JSON: this one was computed with
// printf '{"quantity":3,"sku":"4006381333931"}' | sha256sum.
func TestChecksum(t *testing.T) {
	t.Parallel()
	m := seal(t, newCatalog(t), fixedEvent(StockReserved{SKU: "4006381333931", Quantity: 3}), envelope.Source{}, envelope.Context{})
	const want = "9e6d6fea5d5ac4af40a3436c120f765c5eac9fafdfdcba061dc4ad5d3a459dae"
	require.Equal(t, want, m.Metadata.Envelope.Checksum)
	require.NoError(t, m.VerifyChecksum())

	m.Data = json.RawMessage("{ \"quantity\" : 3.0e0,\n\"sku\":\"\\u0034006381333931\" }")
	require.NoError(t, m.VerifyChecksum(), "the same data, written differently")

	m.Data = json.RawMessage(`{"sku":"4006381333931","quantity":4}`)
	require.EqualError(t, m.VerifyChecksum(), "envelope: verify checksum of "+
		"Ordering.StockReserved.v2 0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b: "+
		`metadata says "`+want+`", data has "f9fb1a23e48198caff33e1e563b5832a083a4603fdc235b96ed4bcb21a1af21a": `+
		"the data was changed on its way: fetch the message again from its outbox row")
}

func TestVerifyChecksumOfOthers(t *testing.T) {
	t.Parallel()
	var m envelope.Message
	require.EqualError(t, m.VerifyChecksum(), "envelope: decode internal message: metadata.envelope.checksum is missing: "+
		"verify the internal form: external messages carry no checksum")
	m.Metadata.Envelope.Checksum = "x"
	m.Data = json.RawMessage(`{`)
	require.EqualError(t, m.VerifyChecksum(), "envelope: decode internal message: canonical JSON: Unexpected EOF reached: "+
		"the data was changed on its way: fetch the message again from its outbox row")
}
