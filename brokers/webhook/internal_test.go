package webhook

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The example of Standard Webhooks' own libraries.
func TestSignatureOfTheStandard(t *testing.T) {
	t.Parallel()
	keys, err := parseSecrets([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	require.NoError(t, err)
	assert.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		signatures(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)))
}

func TestIsPublic(t *testing.T) {
	t.Parallel()
	for address, public := range map[string]bool{
		"93.184.215.14": true, "8.8.8.8": true, "2606:2800:21f:cb07:6820:80da:af6b:8b2c": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false, "0.1.2.3": false,
		"10.1.2.3": false, "172.16.0.1": false, "172.31.255.255": false, "172.32.0.1": true, "168.63.129.16": false, "168.63.129.17": true, "192.168.1.1": false, "100.64.0.1": false, "100.128.0.1": true,
		"169.254.169.254": false, "fe80::1%eth0": false, "fd00:ec2::254": false, "fc00::1": false, "fec0::1": false, "224.0.0.1": false, "ff02::1": false,
		"255.255.255.255": false, "240.0.0.1": false, "192.0.0.8": false, "192.0.2.1": false, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.9": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "2002:7f00:1::1": false, "2001::1": false, "2001:db8::1": false, "100::1": false, "::10.0.0.1": false,
	} {
		assert.Equal(t, public, isPublic(netip.MustParseAddr(address)), address)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for said, want := range map[string]time.Duration{
			"": 0, "0": 0, "7": 7 * time.Second, "86400": time.Hour, "-1": 0, "soon": 0,
			"1.5": 1500 * time.Millisecond, "0.25": 250 * time.Millisecond, "7.": 7 * time.Second, "3600.5": time.Hour, "0.0": 0,
			"2147483648": time.Hour, "4294967296": time.Hour, "99999999999999999999": time.Hour, strings.Repeat("9", 10_000): time.Hour,
			".": 0, "1.5.2": 0, "1e3": 0, "+7": 0, "-0.5": 0, "0x7": 0, "Inf": 0, "NaN": 0, "1_0": 0, "7 s": 0, "7,5": 0,
			time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat): 90 * time.Second,
			time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat):       0,
			time.Now().Add(48 * time.Hour).UTC().Format(http.TimeFormat):   time.Hour,
		} {
			answer := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {said}}}
			assert.Equal(t, want, retryAfter(answer), said)
			answer.StatusCode = http.StatusInternalServerError
			assert.Zero(t, retryAfter(answer))
		}
	})
}

func TestVerifier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		older, newer, other := NewSecret(), NewSecret(), NewSecret()
		keys, err := parseSecrets([]string{newer, older})
		require.NoError(t, err)
		body := []byte(`{"a":1}`)
		signed := http.Header{
			HeaderID: {"m-1"}, HeaderTimestamp: {"946684800"}, // synctest's clock begins in 2000
			HeaderSignature: {"v1a,QUJD not-one " + signatures(keys, "m-1", "946684800", body)},
		}
		verify := func(header http.Header, body []byte, secrets ...string) error {
			v, err := NewVerifier(0, secrets...)
			require.NoError(t, err)
			return v.Verify(header, body)
		}
		without := func(name string) http.Header {
			header := signed.Clone()
			header.Del(name)
			return header
		}
		with := func(name, value string) http.Header {
			header := signed.Clone()
			header.Set(name, value)
			return header
		}
		require.NoError(t, verify(signed, body, older))
		require.NoError(t, verify(signed, body, other, newer))
		for _, err := range []error{
			verify(signed, body, other), verify(signed, append(body, ' '), older),
			verify(without(HeaderID), body, older), verify(without(HeaderTimestamp), body, older), verify(without(HeaderSignature), body, older),
			verify(with(HeaderID, "m-2"), body, older), verify(with(HeaderTimestamp, "946684801"), body, older), verify(with(HeaderTimestamp, "x"), body, older),
			verify(with(HeaderSignature, string(bytes.Repeat([]byte("v1,AA== "), 30))+signed.Get(HeaderSignature)), body, older), // too many
		} {
			require.ErrorIs(t, err, ErrSignature)
		}
		ahead := with(HeaderTimestamp, "946685101")
		ahead.Set(HeaderSignature, signatures(keys, "m-1", "946685101", body))
		require.ErrorContains(t, verify(ahead, body, older), "webhook-timestamp is more than 5m0s away from now")
		time.Sleep(DefaultTolerance)
		require.NoError(t, verify(signed, body, older))
		time.Sleep(time.Second)
		require.ErrorContains(t, verify(signed, body, older), "webhook-timestamp is more than 5m0s away from now")
	})
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	long := base64.StdEncoding.EncodeToString(make([]byte, 65))
	for _, secrets := range [][]string{nil, {""}, {"whsec_"}, {"whsec_hush!"}, {"whsec_aHVzaA=="}, {long}, {NewSecret(), "hush"}, make([]string, 6)} {
		_, err := parseSecrets(secrets)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hush")
		assert.NotContains(t, err.Error(), "aHVzaA")
	}
	_, err := parseSecrets([]string{NewSecret(), base64.StdEncoding.EncodeToString(make([]byte, 24))})
	require.NoError(t, err, "the prefix may be left out")
	_, err = NewVerifier(0)
	require.ErrorContains(t, err, "webhook: there are 0 secrets; give 1 to 5")
}

func FuzzEscaped(f *testing.F) {
	for _, seed := range []string{"", " ", "a b", " a", "%41", "日本", "a\r\nb: c", "\x00\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value := escaped(text)
		for i := range len(value) {
			require.True(t, value[i] >= ' ' && value[i] <= '~', "%q", value)
		}
		back, err := url.PathUnescape(value)
		require.NoError(t, err)
		require.Equal(t, text, back)
		require.Equal(t, value, string(bytes.TrimSpace([]byte(value))), "servers trim values")
	})
}

// However many signatures a request has, its body is gone through once for each secret.
func TestAllocationsOfForgedSignatures(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	v, err := NewVerifier(0, NewSecret(), NewSecret())
	require.NoError(t, err)
	now := strconv.FormatInt(time.Now().Unix(), 10)
	allocations := func(signatures int) float64 {
		header := http.Header{HeaderID: {"m"}, HeaderTimestamp: {now}, HeaderSignature: {strings.TrimSpace(strings.Repeat("v1,Zm9yZ2Vk ", signatures))}}
		return testenv.Allocations(20, func() { require.ErrorIs(t, v.Verify(header, []byte("{}")), ErrSignature) })
	}
	one, many := allocations(1), allocations(mostSignatures)
	assert.InDelta(t, mostSignatures-1, many-one, 0, "each is decoded, and no more")
}
