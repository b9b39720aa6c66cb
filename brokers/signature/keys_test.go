package signature_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/signature"
)

func text(prefix string, n int) string {
	return prefix + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xAB}, n))
}

// inPEM is a key as OpenSSL writes it.
func inPEM(t require.TestingT, kind string, of any) string {
	marshal := x509.MarshalPKCS8PrivateKey
	if kind == "PUBLIC KEY" {
		marshal = x509.MarshalPKIXPublicKey
	}
	der, err := marshal(of)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Each form of one key is the same key.
func TestFormsOfAKey(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	encode := base64.StdEncoding.EncodeToString
	privates := []string{
		"whsk_" + encode(private.Seed()), "whsk_" + encode(private), inPEM(t, "PRIVATE KEY", private), "\n" + inPEM(t, "PRIVATE KEY", private) + " \n",
	}
	for _, form := range privates {
		var producer signature.Keys
		require.NoError(t, producer.Add("k", form))
		require.NoError(t, producer.CanSign())
		m := brokers.Message{ID: "1", Type: "T", Destination: "s"}
		producer.Sign(&m, time.Now())
		for _, form := range append(privates, "whpk_"+encode(public), inPEM(t, "PUBLIC KEY", public)) {
			var partner signature.Keys
			require.NoError(t, partner.Add("k", form))
			_, err := partner.Verify("s", map[string]string{"id": "1", "type": "T", "signature": m.Attributes[0].Value}, nil)
			require.NoError(t, err, form)
		}
	}
}

// Errors say what is wrong, and show neither a key nor what stands in its place.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	const hush = "hunter2hunter2hunter2hunter2hunter2"
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, hidden, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	oneLine := strings.ReplaceAll(inPEM(t, "PRIVATE KEY", hidden), "\n", `\n`)
	const form = "the key is not whsec_ and 32 to 64 bytes in base64"
	for key, want := range map[string]string{
		"":                    form,
		hush:                  form,
		"whsec_" + hush + "!": form,
		text("whsec_", 31):    form,
		text("whsec_", 65):    form,
		text("", 32):          form,
		text("whsk_", 31):     form,
		text("whsk_", 33):     form,
		text("whpk_", 31):     form,
		text("whxx_", 32):     form,
		text("whsk_", 64):     "the public half of the private key is not its own",
		"-----BEGIN " + hush:  "the PEM cannot be read",
		"-----BEGIN PRIVATE KEY-----\n" + hush + "\n-----END PRIVATE KEY-----":                     "the PEM cannot be read",
		"-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----":                     "the key in the PEM cannot be read",
		"-----BEGIN ENCRYPTED PRIVATE KEY-----\naHVudGVyMg==\n-----END ENCRYPTED PRIVATE KEY-----": "the PEM is neither PRIVATE KEY nor PUBLIC KEY",
		oneLine:                                                   `the PEM has \n in place of the ends of its lines: give it line ends, as printf '%b' does, or the key as whsk_ or whpk_ and base64`,
		strings.ReplaceAll(oneLine, `\n`, " "):                    "the PEM is on one line: give it line ends, in YAML behind |, or the key as whsk_ or whpk_ and base64",
		inPEM(t, "PRIVATE KEY", curve):                            "the key in the PEM is not one of Ed25519",
		inPEM(t, "PUBLIC KEY", curve.Public()):                    "the key in the PEM is not one of Ed25519",
		strings.Repeat(inPEM(t, "PUBLIC KEY", curve.Public()), 2): "more than one block",
	} {
		err := new(signature.Keys).Add("2026-11", key)
		require.ErrorContains(t, err, `signature: key "2026-11": `)
		require.ErrorContains(t, err, want, key)
		assert.NotContains(t, err.Error(), "hunter2")
		assert.NotContains(t, err.Error(), "q6ur", "as all of them are in base64")
	}
	for _, id := range []string{"", "a b", "a,b", "a=", "ключ", strings.Repeat("a", 65), hush + "\n"} {
		err := new(signature.Keys).Add(id, text("whsec_", 32))
		require.EqualError(t, err, "signature: a key id has other characters than letters, digits, '.', '_' and '-', or has not 1 to 64 of them")
		require.Equal(t, signature.CheckID(id), err)
	}
	require.EqualError(t, new(signature.Keys).Add("whsec_hunter2", "2026-11"), "signature: a key stands where its id should be")

	var keys signature.Keys
	require.NoError(t, keys.Add("a", text("whsec_", 32)))
	require.EqualError(t, keys.Add("a", text("whsec_", 64)), `signature: key id "a" is there already`)
}

func TestCanSign(t *testing.T) {
	t.Parallel()
	var keys signature.Keys
	require.ErrorContains(t, (*signature.Keys)(nil).CanSign(), "there are 0 keys to sign with: give 1 to 4")
	require.ErrorContains(t, keys.CanSign(), "there are 0 keys")
	for _, id := range []string{"a", "b", "c", "d"} {
		require.NoError(t, keys.Add(id, text("whsec_", 32)))
		require.NoError(t, keys.CanSign())
	}
	require.NoError(t, keys.Add("e", text("whsec_", 32)))
	require.ErrorContains(t, keys.CanSign(), "there are 5 keys")

	var public signature.Keys
	of, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	require.NoError(t, public.Add("p", inPEM(t, "PUBLIC KEY", of)))
	require.EqualError(t, public.CanSign(), `signature: key "p": it is public, and can only verify: give the private key`)
}

// Half of all texts of 32 bytes are no public key: a typing error, or other bytes than those of the key.
func TestPublicKeysThatAreNone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "public")
		// What the standard library says of a signature that is none depends on the key.
		err := ed25519.VerifyWithOptions(bits, nil, make([]byte, ed25519.SignatureSize), &ed25519.Options{})
		isKey := err == nil || err.Error() != "ed25519: bad public key"
		for _, form := range []string{"whpk_" + base64.StdEncoding.EncodeToString(bits), inPEM(t, "PUBLIC KEY", ed25519.PublicKey(bits))} {
			err := new(signature.Keys).Add("k", form)
			if isKey {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, `signature: key "k": the public key is not one of Ed25519: its bytes are no point of the curve: compare them with those that "openssl pkey -pubout" prints`)
			}
		}
	})
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	require.NoError(t, new(signature.Keys).Add("k", inPEM(t, "PUBLIC KEY", public)))
}

// With a public key of small order a signature of anything could be forged: one of zeros is a placeholder
// that was forgotten.
func TestPublicKeysOfSmallOrder(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		strings.Repeat("00", 32), "01" + strings.Repeat("00", 31), strings.Repeat("00", 31) + "80", "01" + strings.Repeat("00", 30) + "80",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"ec" + strings.Repeat("ff", 30) + "7f", "ed" + strings.Repeat("ff", 30) + "7f", "ee" + strings.Repeat("ff", 31),
	} {
		public, err := hex.DecodeString(point)
		require.NoError(t, err)
		for _, form := range []string{"whpk_" + base64.StdEncoding.EncodeToString(public), inPEM(t, "PUBLIC KEY", ed25519.PublicKey(public))} {
			require.EqualError(t, new(signature.Keys).Add("k", form), `signature: key "k": the public key is none that was generated: with it, anyone could sign`)
		}
	}
}
