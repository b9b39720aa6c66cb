package signature_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/signature"
)

// The documentation declares "var keys signature.Keys": by value, or within a struct, none is shown either.
func TestKeysByValueAreNotPrinted(t *testing.T) {
	t.Parallel()
	raw := bytes.Repeat([]byte{0xAB}, 32)
	var keys signature.Keys
	require.NoError(t, keys.Add("a", "whsec_"+base64.StdEncoding.EncodeToString(raw)))
	require.NoError(t, keys.Add("b", "whsk_"+base64.StdEncoding.EncodeToString(raw)))
	type consumer struct {
		Keys   signature.Keys
		hidden signature.Keys
		by     *signature.Keys
	}
	of := consumer{keys, keys, &keys}
	var out bytes.Buffer
	for _, value := range []any{keys, of, &of, []signature.Keys{keys}, map[string]signature.Keys{"a": keys}, of.hidden, of.by} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "keys", value)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "keys", value)
	}
	for _, secret := range []string{string(raw[:8]), fmt.Sprintf("%x", raw[:8]), "171 171", "0xab, 0xab"} {
		assert.NotContains(t, out.String(), secret)
	}
}
