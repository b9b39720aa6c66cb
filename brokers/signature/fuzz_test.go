package signature

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a sender writes is refused, or is what parse has made of it, byte for byte: there is one way to
// write a signature.
func FuzzParse(f *testing.F) {
	f.Add("t=1795500000 v1a,2026-11,amvjfhiMvE+YKgt9S41s2Gco60eGApkoa1D1Tn4EZJkVOuUPof4LlEgpbsWQo0/ZBO7QI5fIm4nw54JRaYG1Aw==")
	f.Add("t=0 v1,a,YQ== v1a,b, v2")
	f.Add("t=00 v1,a,YQ==")
	f.Add("t=1 v1,a,YR==")
	f.Add("t=1 v1,a,Y\nQ== ")
	f.Add(" t=1  v1,,")
	f.Fuzz(func(t *testing.T, value string) {
		at, signatures, err := parse(value)
		if err != nil {
			require.LessOrEqual(t, len(err.Error()), 200)
			return
		}
		require.LessOrEqual(t, len(value), mostBytes)
		require.NotEmpty(t, signatures)
		require.LessOrEqual(t, len(signatures), mostSignatures)
		written := fmt.Sprint("t=", at)
		for _, part := range strings.Split(value, " ")[1:] {
			if version, _, _ := strings.Cut(part, ","); version != versionHMAC && version != versionEd25519 {
				written += " " + part
				continue
			}
			one := signatures[0]
			signatures = signatures[1:]
			require.True(t, validID(one.keyID))
			written += " " + one.version + "," + one.keyID + "," + base64.StdEncoding.EncodeToString(one.signature)
		}
		require.Empty(t, signatures)
		require.Equal(t, value, written)
	})
}
