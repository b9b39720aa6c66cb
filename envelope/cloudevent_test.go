package envelope_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

func cloudEvent(t *testing.T, m *envelope.Message, opts envelope.CloudEventOptions) *envelope.CloudEvent {
	t.Helper()
	b, err := m.MarshalCloudEvent(opts)
	require.NoError(t, err)
	ce, err := envelope.DecodeCloudEvent(b)
	require.NoError(t, err)
	return ce
}

func TestCloudEventRoundTrip(t *testing.T) {
	t.Parallel()
	m := seal(t, newCatalog(t), placed(), order42, fullContext())
	require.Equal(t, &envelope.CloudEvent{
		ID:              fixedID.String(),
		Source:          "https://shop.example.com/ordering",
		Type:            "Ordering.OrderPlaced.v1",
		Subject:         "42",
		Time:            fixedTime,
		DataContentType: "application/json",
		TraceParent:     m.Routing.TraceParent,
		TraceState:      "vendor=a:1",
		PartitionKey:    "ordering::order-42",
		Sequence:        "0000000000000000007.0000000001",
		CorrelationID:   "checkout-9",
		CausationID:     "0197f0a2-0000-7000-8000-000000000001",
		Extensions:      envelope.Extensions{"actor": "ada", "region": "eu", "tenantid": "acme"},
		Data:            m.Data,
	}, cloudEvent(t, m, envelope.CloudEventOptions{TraceState: true, Source: "https://shop.example.com/ordering", Extensions: every(m)}))
}

func TestCloudEventSource(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	for aggregate, want := range map[string]string{
		"":          "/ordering",
		"OrderLine": "/ordering/order_line",
		"Größe":     "/ordering/gr%C3%B6%C3%9Fe",
	} {
		source := envelope.Source{Aggregate: aggregate}
		if aggregate != "" {
			source.ID = "1"
		}
		require.Equal(t, want, cloudEvent(t, seal(t, c, placed(), source, envelope.Context{}), envelope.CloudEventOptions{}).Source)
	}
	for source, want := range map[string]string{
		"":                         "",
		"urn:example:shop":         "",
		"/shop":                    "",
		"https://example.com/a b":  `envelope: set CloudEvents source "https://example.com/a b": it contains a character that must be percent-encoded: use a URI-reference such as "https://shop.example.com/ordering", or leave it out`,
		"https://example.com/%zz":  `envelope: set CloudEvents source "https://example.com/%zz": parse "https://example.com/%zz": invalid URL escape "%zz": use a URI-reference such as "https://shop.example.com/ordering", or leave it out`,
		"https://example.com/\xff": `envelope: set CloudEvents source "https://example.com/\xff": "https://example.com/\xff" is not valid UTF-8: use a URI-reference such as "https://shop.example.com/ordering", or leave it out`,
	} {
		opts := envelope.CloudEventOptions{Source: source}
		if want == "" {
			require.NoError(t, opts.Validate())
			continue
		}
		require.EqualError(t, opts.Validate(), want)
		_, err := seal(t, c, placed(), order42, envelope.Context{}).MarshalCloudEvent(opts)
		require.EqualError(t, err, want)
	}
}

func TestCloudEventExtensionErrors(t *testing.T) {
	t.Parallel()
	const remedy = ": rename the extension to 1 to 20 characters a-z and 0-9 not taken by CloudEvents, make its value a string, a number or a boolean, or set format: native for the broker"
	c := newCatalog(t)
	for name, test := range map[string]struct {
		extensions map[string]any
		want       string
	}{
		"capital":   {map[string]any{"requestId": "a"}, `extension "requestId" cannot be the name of an attribute`},
		"long":      {map[string]any{"abcdefghijklmnopqrstu": "a"}, `extension "abcdefghijklmnopqrstu" cannot be the name of an attribute`},
		"taken":     {map[string]any{"subject": "a"}, `extension "subject" has the name of another attribute`},
		"ours":      {map[string]any{"partitionkey": "a"}, `extension "partitionkey" has the name of another attribute`},
		"object":    {map[string]any{"o": map[string]int{}}, `extension "o" is an array or object`},
		"array":     {map[string]any{"a": []int{1}}, `extension "a" is an array or object`},
		"collision": {map[string]any{"tenant_id": "a", "tenantid": "b"}, `two extensions become the attribute "tenantid"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := seal(t, c, placed(), order42, envelope.Context{Extensions: test.extensions})
			_, err := m.MarshalCloudEvent(envelope.CloudEventOptions{Extensions: every(m)})
			require.EqualError(t, err, "envelope: encode Ordering.OrderPlaced.v1: "+test.want+remedy)
			_, err = m.MarshalExternal(envelope.Include{}, every(m)...)
			require.NoError(t, err, "the native form takes it")
		})
	}

	require.NoError(t, envelope.ValidateCloudEventExtension("tenant_id"))
	require.NoError(t, envelope.ValidateCloudEventExtension("abcdefghijklmnopqrst"))
	require.EqualError(t, envelope.ValidateCloudEventExtension("data"), `envelope: check extensions for CloudEvents: extension "data" has the name of another attribute`+remedy)

	envelope.Register[withFloat](c, envelope.Extension("not_for_ce", 1)) // internal: nobody minds
	require.NoError(t, c.ValidateCloudEvents("not_for_ce"))
	envelope.Register[withRaw](c, envelope.Published(), envelope.Extension("not_for_ce", 1), envelope.Extension("list", []int{}))
	require.NoError(t, c.Err())
	require.NoError(t, c.ValidateCloudEvents("region"), "what does not leave need not fit")
	require.EqualError(t, c.ValidateCloudEvents("not_for_ce", "list"),
		`envelope: check event envelope_test.withRaw for CloudEvents: extension "not_for_ce" cannot be the name of an attribute`+remedy+"\n"+
			`envelope: check event envelope_test.withRaw for CloudEvents: extension "list" is an array or object`+remedy)
}

// Data in base64 is there as bytes, and as JSON where it is JSON that can be understood in one way
// alone.
func TestDecodeCloudEventBinary(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"\x08\x96\x01", "", "null", `{"a":1,"a":2}`, `{"a":1}`} {
		ce, err := envelope.DecodeCloudEvent([]byte(ceWith(`"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(data)) + `"`)))
		require.NoError(t, err)
		require.Equal(t, data, string(ce.Binary))
		if data == `{"a":1}` {
			require.Equal(t, data, string(ce.Data))
		} else {
			require.Nil(t, ce.Data, data)
		}
		require.Nil(t, ce.Extensions)
	}
	ce, err := envelope.DecodeCloudEvent([]byte(ceWith(`"data":1,"data_base64":null`)))
	require.NoError(t, err)
	require.Nil(t, ce.Binary)
	require.Equal(t, "1", string(ce.Data))
}

func TestDecodeCloudEventErrors(t *testing.T) {
	t.Parallel()
	const remedy = ": check which producer writes to this stream, and its format"
	for in, want := range map[string]string{
		"\"\xff\"":                              "it is not valid UTF-8" + remedy,
		`{"specversion":"0.3"}`:                 "attribute id is missing" + remedy,
		`{}`:                                    "attribute specversion is missing" + remedy,
		`null`:                                  "attribute specversion is missing" + remedy,
		`{"specversion":1}`:                     "attribute specversion: json: cannot unmarshal number into Go value of type string" + remedy,
		ceWith(`"specversion":"0.3"`):           `specversion is "0.3", known is "1.0": update this consumer`,
		ceWith(`"time":"yesterday"`):            `attribute time is "yesterday", not a time of RFC 3339` + remedy,
		ceWith(`"data_base64":"AA="`):           "member data_base64: illegal base64 data at input byte 3" + remedy,
		ceWith(`"data_base64":[0,1]`):           "member data_base64: json: cannot unmarshal array into Go value of type string" + remedy,
		ceWith(`"data":1,"data_base64":"AA=="`): "it has both data and data_base64" + remedy,
	} {
		_, err := envelope.DecodeCloudEvent([]byte(in))
		require.EqualError(t, err, "envelope: decode cloudevents message: "+want, in)
		var decode *envelope.DecodeError
		require.ErrorAs(t, err, &decode)
	}
	for in, want := range map[string]string{
		ceWith(`"data":1`):                        `attribute id is "A-1", not a UUID: read events of other producers with DecodeCloudEvent`,
		ceWith(`"id":"` + fixedID.String() + `"`): "member data is missing: read events of other producers with DecodeCloudEvent",
		ceWith(`"time":"yesterday"`):              `attribute time is "yesterday", not a time of RFC 3339` + remedy,
	} {
		_, _, err := envelope.Decode([]byte(in))
		require.EqualError(t, err, "envelope: decode cloudevents message: "+want, in)
	}
}

// ceWith returns a minimal CloudEvent with one more member, or another value of one that it has.
func ceWith(member string) string {
	members := []string{`"specversion":"1.0"`, `"id":"A-1"`, `"source":"/x"`, `"type":"t"`}
	name, _, _ := strings.Cut(member, ":")
	members = slices.DeleteFunc(members, func(m string) bool { return strings.HasPrefix(m, name+":") })
	return "{" + strings.Join(append(members, member), ",") + "}"
}
