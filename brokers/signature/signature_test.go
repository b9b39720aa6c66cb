package signature_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A vector is a message with its signature. They were made with Python and OpenSSL, not with this
// package.
type vector struct {
	Name, ID, Type, Destination string
	Keys                        []string
	Time                        int64
	Payload                     []byte `json:"payload_base64"`
	Texts                       []string
	Signature                   string
}

func (v *vector) message() brokers.Message {
	return brokers.Message{ID: v.ID, Type: v.Type, Destination: v.Destination, Payload: v.Payload}
}

func (v *vector) attributes() map[string]string {
	return map[string]string{"id": v.ID, "type": v.Type, "signature": v.Signature}
}

type vectors struct {
	Keys []struct{ ID, Private, Public, Secret string }
	// Messages have texts too, for those who write an implementation.
	Messages []vector
}

func readVectors(t testing.TB) (v vectors) {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

// keys are those of these ids, or all: the producer's, or those that a partner has.
func (v *vectors) keys(t testing.TB, partner bool, ids ...string) *signature.Keys {
	t.Helper()
	keys, all := new(signature.Keys), map[string]string{}
	for _, k := range v.Keys {
		all[k.ID] = k.Private + k.Secret
		if partner {
			all[k.ID] = k.Public + k.Secret
		}
		if len(ids) == 0 {
			require.NoError(t, keys.Add(k.ID, all[k.ID]))
		}
	}
	for _, id := range ids {
		require.NoError(t, keys.Add(id, all[id]))
	}
	return keys
}

func TestVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	require.NotEmpty(t, v.Messages)
	partner := v.keys(t, true)
	for _, one := range v.Messages {
		m := one.message()
		producer := v.keys(t, false, one.Keys...)
		require.NoError(t, producer.CanSign())
		producer.Sign(&m, time.Unix(one.Time, 999))
		assert.Equal(t, []brokers.Attribute{{Name: "signature", Value: one.Signature}}, m.Attributes, one.Name)
		signed, err := partner.Verify(one.Destination, one.attributes(), one.Payload)
		require.NoError(t, err, one.Name)
		assert.Equal(t, time.Unix(one.Time, 0).UTC(), signed)
		for _, id := range one.Keys { // a partner may know but one of them, and have the private key
			_, err = v.keys(t, false, id).Verify(one.Destination, one.attributes(), one.Payload)
			require.NoError(t, err, "%s: %s", one.Name, id)
		}
	}
}

// Any changed, missing or added byte of what is signed, and of the signature itself, is found.
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	partner := v.keys(t, true)
	for _, one := range v.Messages {
		if len(one.Keys) > 1 { // one of several is enough, so a change of the others is no harm
			one.Keys = one.Keys[:1]
			m := one.message()
			v.keys(t, false, one.Keys...).Sign(&m, time.Unix(one.Time, 0))
			one.Signature = m.Attributes[0].Value
		}
		verify := func(destination string, attributes map[string]string, payload []byte) error {
			_, err := partner.Verify(destination, attributes, payload)
			return err
		}
		require.NoError(t, verify(one.Destination, one.attributes(), one.Payload))
		for _, payload := range changes(string(one.Payload)) {
			require.Error(t, verify(one.Destination, one.attributes(), []byte(payload)), "%s: payload %q", one.Name, payload)
		}
		for _, destination := range changes(one.Destination) {
			require.Error(t, verify(destination, one.attributes(), one.Payload), "%s: destination %q", one.Name, destination)
		}
		for name, value := range one.attributes() {
			for _, changed := range changes(value) {
				attributes := one.attributes()
				attributes[name] = changed
				require.Error(t, verify(one.Destination, attributes, one.Payload), "%s: %s %q", one.Name, name, changed)
			}
			attributes := one.attributes()
			delete(attributes, name)
			require.Error(t, verify(one.Destination, attributes, one.Payload), "%s: no %s", one.Name, name)
		}
	}
}

// changes are a text with each of its bits turned, each byte missing, and bytes added.
func changes(text string) (all []string) {
	for i := range len(text) {
		for bit := range 8 {
			changed := []byte(text)
			changed[i] ^= 1 << bit
			all = append(all, string(changed))
		}
		all = append(all, text[:i]+text[i+1:])
	}
	return append(all, text+"x", "x"+text, text+" ", text+"\n", text+"\x00")
}

// The parts of a message cannot pass into each other, and keys of one text do not sign for each other.
func TestNoTwoMessagesReadAlike(t *testing.T) {
	t.Parallel()
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	one, two := new(signature.Keys), new(signature.Keys)
	require.NoError(t, one.Add("one", secret))
	require.NoError(t, two.Add("two", secret))
	m := brokers.Message{ID: "a\n1:b", Type: "c", Destination: "d\n1:e"}
	one.Sign(&m, time.Unix(5, 0))
	value := m.Attributes[0].Value
	for _, parts := range [][3]string{{"a", "b\n1:c", "d\n1:e"}, {"a\n1:b", "c\n1:d", "e"}, {"a", "1:b\n1:c", "d"}, {"a\n1:b", "d\n1:e", "c"}} {
		_, err := one.Verify(parts[2], map[string]string{"id": parts[0], "type": parts[1], "signature": value}, nil)
		require.Error(t, err, parts)
	}
	attributes := map[string]string{"id": m.ID, "type": m.Type, "signature": value}
	_, err := one.Verify(m.Destination, attributes, nil)
	require.NoError(t, err)
	attributes["signature"] = strings.Replace(value, "one", "two", 1)
	_, err = two.Verify(m.Destination, attributes, nil)
	require.ErrorContains(t, err, `key ["two"] is not that of this message`)
}

// While keys are changed, partners with the old one, the new one and both read on, and no one else.
func TestRotation(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	older, newer := v.keys(t, true, "2026-11"), v.keys(t, true, "2027-05")
	both := v.keys(t, true, "2027-05", "2026-11")
	for _, phase := range []struct {
		signs              []string
		older, newer, both string
	}{
		{[]string{"2026-11"}, "", `no known key has signed the message, only ["v1a 2026-11"]: ask the producer`, ""},
		{[]string{"2026-11", "2027-05"}, "", "", ""},
		{[]string{"2027-05"}, `only ["v1a 2027-05"]`, "", ""},
	} {
		m := v.Messages[0].message()
		v.keys(t, false, phase.signs...).Sign(&m, time.Unix(1, 0))
		attributes := map[string]string{"id": m.ID, "type": m.Type, "signature": m.Attributes[0].Value}
		for _, c := range []struct {
			keys *signature.Keys
			want string
		}{{older, phase.older}, {newer, phase.newer}, {both, phase.both}} {
			_, err := c.keys.Verify(m.Destination, attributes, m.Payload)
			if c.want == "" {
				require.NoError(t, err, phase.signs)
			} else {
				require.ErrorContains(t, err, c.want, phase.signs)
			}
		}
	}
}

// What an attribute of that name said before is replaced, and a message's own slice left alone.
func TestSignReplaces(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	m := v.Messages[0].message()
	given := []brokers.Attribute{{Name: "a", Value: "1"}, {Name: "signature", Value: "forged"}, {Name: "z", Value: "2"}}
	before := append([]brokers.Attribute{}, given...)
	m.Attributes = given
	keys := v.keys(t, false, "2026-11")
	keys.Sign(&m, time.Unix(1, 0))
	keys.Sign(&m, time.Unix(1795500000, 0))
	assert.Equal(t, []brokers.Attribute{{Name: "signature", Value: v.Messages[0].Signature}, {Name: "a", Value: "1"}, {Name: "z", Value: "2"}}, m.Attributes)
	assert.Equal(t, before, given)

	m.Attributes = given
	v.keys(t, true, "2026-11").Sign(&m, time.Unix(1, 0)) // public
	assert.Equal(t, before, m.Attributes)
	new(signature.Keys).Sign(&m, time.Unix(1, 0))
	assert.Equal(t, before, m.Attributes)
}

// What does not look like a signature is refused with a reason.
func TestMalformedSignatures(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	partner := v.keys(t, true)
	one := v.Messages[0]
	entry := strings.TrimPrefix(one.Signature, "t=1795500000 ")
	repeated := func(n int, format string) (all string) {
		for i := range n {
			all += fmt.Sprintf(format, i)
		}
		return all
	}
	for value, want := range map[string]string{
		"":                                         "does not begin with t= and a number of seconds",
		entry:                                      "does not begin with t=",
		"t= " + entry:                              "does not begin with t=",
		"t=01795500000 " + entry:                   "does not begin with t=",
		"t=+1795500000 " + entry:                   "does not begin with t=",
		"t=-5 " + entry:                            "does not begin with t=",
		"t=1795500000000 " + entry:                 "does not begin with t=",
		"t=1795500000":                             "has 0 signatures, 1 to 8 are read",
		"t=1795500000 ":                            "signature 1 has no version",
		"t=1795500000  " + entry:                   "signature 1 has no version",
		one.Signature + " ":                        "signature 2 has no version",
		"t=1795500000 v1a":                         "signature 1 is not a version, a key id and base64",
		"t=1795500000 v1a,2026-11":                 "signature 1 is not a version, a key id and base64",
		"t=1795500000 v1a,a/b,YQ==":                "signature 1 is not a version, a key id and base64",
		"t=1795500000 v1a,2026-11,YR==":            "signature 1 is not in base64", // of which strict base64 has one form
		"t=1795500000 v1a,2026-11,Y\nQ==":          "signature 1 is not in base64",
		"t=1795500000 v1a,2026-11,YQ":              "signature 1 is not in base64",
		one.Signature + " " + entry:                `signature 2 has the key id of another one, "2026-11"`,
		"t=1795500000 v7,x v8,2026-11,y":           "it has no signature of version v1 or v1a",
		"t=1795500000" + repeated(9, " v1,%d,"):    "has 9 signatures, 1 to 8 are read",
		one.Signature + strings.Repeat(" v2", 400): "it has 1313 bytes, the most is 1024",
		"t=1795500000 v1,2026-11,YQ==":             `no known key has signed the message, only ["v1 2026-11"]`, // an Ed25519 key is no secret
		"t=1795500000 v1a,2026-11,YQ==":            `the signature of key ["2026-11"] is not that of this message in destination "ordering::order"`,
		"t=1795500000 v1a,2026-11,":                `the signature of key ["2026-11"] is not that of this message`,
	} {
		attributes := one.attributes()
		attributes["signature"] = value
		_, err := partner.Verify(one.Destination, attributes, one.Payload)
		require.ErrorContains(t, err, want, value)
	}
	attributes := one.attributes()
	attributes["signature"] = one.Signature + " v2,whatever v9" // of versions to come
	_, err := partner.Verify(one.Destination, attributes, one.Payload)
	require.NoError(t, err)

	for _, name := range []string{"id", "type"} { // as of headers of RabbitMQ alone, which has them as properties
		without := one.attributes()
		delete(without, name)
		_, err := partner.Verify(one.Destination, without, one.Payload)
		require.EqualError(t, err, fmt.Sprintf(`signature: the field %q is not given, which is signed: RabbitMQ has it as a property of the message`, name))
	}
	delete(attributes, "signature")
	_, err = partner.Verify(one.Destination, attributes, one.Payload)
	require.EqualError(t, err, `signature: the message is not signed: it has no field "signature"`)
	_, err = new(signature.Keys).Verify(one.Destination, one.attributes(), one.Payload)
	require.EqualError(t, err, "signature: there is no key to verify with: add one")
}

func TestVerifyChangesNothing(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	one := v.Messages[1]
	attributes, payload := one.attributes(), bytes.Clone(one.Payload)
	_, err := v.keys(t, true).Verify(one.Destination, attributes, payload)
	require.NoError(t, err)
	assert.Equal(t, one.Payload, payload)
	assert.True(t, maps.Equal(one.attributes(), attributes))
}

// However keys are printed, none is shown.
func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	keys := v.keys(t, false)
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "keys", keys)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "keys", keys)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", keys, *keys, struct{ keys signature.Keys }{*keys})
	}
	asJSON, err := json.Marshal(map[string]any{"keys": keys})
	require.NoError(t, err)
	assert.Contains(t, out.String(), "[4 keys]")
	out.Write(asJSON)
	for _, k := range v.Keys {
		raw, err := base64.StdEncoding.DecodeString((k.Private + k.Secret)[strings.Index(k.Private+k.Secret, "_")+1:])
		require.NoError(t, err)
		for _, secret := range []string{k.Private + k.Secret, string(raw), fmt.Sprintf("%x", raw), fmt.Sprintf("%v", raw)} {
			assert.NotContains(t, out.String(), secret)
		}
	}
}

// What a signature costs a relay: of the bytes of the payload, one pass of SHA-256.
func TestAllocationsOfSign(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	v := readVectors(t)
	keys := v.keys(t, false, "2026-11")
	m := v.Messages[0].message()
	attributes := []brokers.Attribute{{Name: "traceparent", Value: "x"}}
	assert.LessOrEqual(t, testenv.Allocations(100, func() {
		m.Attributes = attributes
		keys.Sign(&m, time.Unix(1795500000, 0))
	}), 5.0)
}
