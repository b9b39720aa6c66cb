package contract_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/contract"
)

// hostile is a file of one broker with this schema as its envelope, and with these types.
func hostile(t *testing.T, envelope, types string) *contract.Document {
	t.Helper()
	d := new(contract.Document)
	require.NoError(t, json.Unmarshal(fmt.Appendf(nil,
		`{"fanout_contract":1,"context":"a","brokers":{"p":{"format":"native","content_type":"","headers":{},"envelope":%s,"types":{%s}}}}`, envelope, types), d))
	return d
}

// chain is n definitions, of which each has the next one.
func chain(n int) string {
	var defs strings.Builder
	for i := range n {
		fmt.Fprintf(&defs, `"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"}}},`, i, i+1)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s"d%d":{"type":"string"}}}`, defs.String(), n)
}

// circles are definitions in a circle of n: two circles of other lengths pair them in every
// combination.
func circles(n int, members string) string {
	var defs strings.Builder
	for i := range n {
		fmt.Fprintf(&defs, `"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"}%s}},`, i, (i+1)%n, members)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s"e":{}}}`, defs.String())
}

// A file can be within all bounds, and still be made to cost more than it has bytes.
func TestHostileFilesAreRefused(t *testing.T) {
	t.Parallel()
	const tooComplex = "jsonschema: the two schemas have too many parts to compare"
	_, _, err := hostile(t, chain(90), "").Changes(hostile(t, chain(90), ""))
	require.NoError(t, err)
	_, _, err = hostile(t, chain(10_000), "").Changes(hostile(t, chain(10_000), ""))
	require.EqualError(t, err, tooComplex)
	_, _, err = hostile(t, circles(997, ""), "").Changes(hostile(t, circles(1009, ""), ""))
	require.EqualError(t, err, tooComplex)

	var members, types strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&members, `,"m%d":{}`, i)
		fmt.Fprintf(&types, `"t%d":{"destination":"","key":"","data":{}},`, i)
	}
	_, _, err = hostile(t, circles(7, members.String()), "").Changes(hostile(t, circles(11, ""), ""))
	require.EqualError(t, err, tooComplex)
	_, err = hostile(t, circles(3, members.String()), strings.TrimSuffix(types.String(), ",")).AsyncAPI("1.0.0")
	require.EqualError(t, err, "contract: write AsyncAPI: the document would have more than 67108864 bytes: name fewer brokers")
}
