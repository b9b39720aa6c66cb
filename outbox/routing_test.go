package outbox_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

type (
	placed   struct{ ID string }
	audited  struct{ ID string }
	expiring struct{ ID string }
)

func seal(t *testing.T, data any, opts ...envelope.Option) *envelope.Message {
	t.Helper()
	return sealIn(t, data, envelope.Context{}, opts...)
}

func sealIn(t *testing.T, data any, cx envelope.Context, opts ...envelope.Option) *envelope.Message {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[placed](events, envelope.Published(), envelope.Name("Placed"))
	envelope.Register[audited](events, envelope.Name("Audited"))
	envelope.Register[expiring](events, envelope.Published(), envelope.TTL(time.Minute))
	require.NoError(t, events.Err())
	message, err := events.Seal(envelope.NewEvent(data, opts...), envelope.Source{Aggregate: "Order", ID: "1", Sequence: 1}, cx)
	require.NoError(t, err)
	return message
}

func brokersOf(rows []outbox.Row) []string {
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].TargetBroker
	}
	return names
}

func TestAppendRows(t *testing.T) {
	t.Parallel()
	routing := outbox.Routing{External: []outbox.Route{
		{Broker: "a"}, {Broker: "b"}, {Broker: "events", Format: envelope.FormatCloudEvents}, {Broker: "picky", Types: []string{"Billing.*", "*.Audited.*"}},
	}}.WithDefaults()
	require.NoError(t, routing.Validate())

	rows, err := routing.AppendRows(nil, seal(t, placed{"1"}))
	require.NoError(t, err)
	assert.Equal(t, []string{"default", "a", "b", "events"}, brokersOf(rows))
	for _, row := range rows {
		assert.Equal(t, rows[0].MessageID, row.MessageID)
		assert.Equal(t, "ordering::order", row.Stream)
		assert.Equal(t, "ordering::order-1", row.OrderingKey)
		assert.Equal(t, "Ordering.Placed.v1", row.Type)
		assert.True(t, json.Valid(row.Payload))
	}
	assert.Same(t, &rows[1].Payload[0], &rows[2].Payload[0], "brokers of one form share the payload")
	assert.Equal(t, "application/cloudevents+json", rows[3].ContentType)

	rows, err = routing.AppendRows(nil, seal(t, audited{"1"}))
	require.NoError(t, err)
	assert.Equal(t, []string{"default"}, brokersOf(rows), "not published: it stays inside, whatever a filter says")

	rows, err = routing.AppendRows(nil, seal(t, placed{"1"}, envelope.To("b", "picky")))
	require.NoError(t, err)
	assert.Equal(t, []string{"default", "b"}, brokersOf(rows))

	_, err = routing.AppendRows(nil, seal(t, placed{"1"}, envelope.To("nobody")))
	var unknown *outbox.UnknownBrokerError
	require.ErrorAs(t, err, &unknown)
	assert.Equal(t, "nobody", unknown.Broker)

	routing.MaxPayloadBytes = 100
	for _, event := range []any{placed{"1"}, audited{"1"}} {
		_, err = routing.AppendRows(nil, seal(t, event))
		var oversize *outbox.OversizeError
		require.ErrorAs(t, err, &oversize)
		assert.Equal(t, "default", oversize.Broker)
		assert.Equal(t, 100, oversize.Max)
	}
}

// Each external broker gets the extensions that it lists, and no others; the internal one gets all.
func TestExtensionsLeaveWhereTheyAreListed(t *testing.T) {
	t.Parallel()
	routing := outbox.Routing{External: []outbox.Route{
		{Broker: "none"},
		{Broker: "tenant", Extensions: []string{"tenant_id"}},
		{Broker: "none again"},
		{Broker: "more", Extensions: []string{"actor", "region_code", "missing"}},
		{Broker: "events", Format: envelope.FormatCloudEvents},
		{Broker: "tenant events", Format: envelope.FormatCloudEvents, Extensions: []string{"tenant_id"}},
	}}.WithDefaults()
	require.NoError(t, routing.Validate())
	message := seal(t, placed{"1"}, envelope.Extension("tenant_id", "acme"), envelope.Extension("actor", "grace"), envelope.Extension("region_code", "eu"),
		envelope.Extension("no-attribute", []int{1}))
	rows, err := routing.AppendRows(nil, message)
	require.NoError(t, err, "what does not leave need not fit CloudEvents")
	want := map[string][]string{
		"default": {"acme", "grace", `"eu"`, "no-attribute"}, "tenant": {`"extensions":{"tenant_id":"acme"}`}, "tenant events": {`"tenantid":"acme"`},
		"more": {`"extensions":{"actor":"grace","region_code":"eu"}`},
	}
	require.Len(t, rows, 7)
	for _, row := range rows {
		payload := string(row.Payload)
		for _, part := range want[row.TargetBroker] {
			assert.Contains(t, payload, part, row.TargetBroker)
		}
		found := strings.Count(payload, "acme") + strings.Count(payload, "grace") + strings.Count(payload, `"eu"`) + strings.Count(payload, "no-attribute")
		assert.Equal(t, map[string]int{"default": 4, "tenant": 1, "tenant events": 1, "more": 2}[row.TargetBroker], found, "%s: %s", row.TargetBroker, payload)
		assert.Equal(t, row.TargetBroker == "default" || row.TargetBroker == "tenant" || row.TargetBroker == "more", strings.Contains(payload, `"extensions"`), row.TargetBroker)
		assert.Equal(t, "acme", row.TenantID, "for operators, on every row")
	}
	routing.External[3].Format = envelope.FormatCloudEvents
	routing.External[1].Extensions = []string{"", "a", "a"}
	err = routing.Validate()
	require.ErrorContains(t, err, `external broker "more": extensions: envelope: check extensions for CloudEvents: extension "region_code" cannot be the name of an attribute`)
	require.ErrorContains(t, err, `external broker "tenant": extensions: "" is no name of an extension`)
	require.ErrorContains(t, err, `"a" is listed twice`)
}

// The Go type of an event, the key of a client's request, and the state of other vendors' tracing leave where they are
// listed; the internal broker gets them all.
func TestWhatElseLeavesIsListed(t *testing.T) {
	t.Parallel()
	static := outbox.Overrides{Attributes: map[string]string{"region": "eu"}}
	routing := outbox.Routing{External: []outbox.Route{
		{Broker: "lean"},
		{Broker: "lean static", Overrides: static},
		{Broker: "whole", Include: envelope.Include{FQN: true, IdempotencyKey: true, Nulls: true, TraceState: true}},
		{Broker: "fqn", Include: envelope.Include{FQN: true}, Overrides: static},
		{Broker: "lean again"},
		{Broker: "events", Format: envelope.FormatCloudEvents},
		{Broker: "traced events", Format: envelope.FormatCloudEvents, Include: envelope.Include{TraceState: true}},
	}}.WithDefaults()
	require.NoError(t, routing.Validate())
	rows, err := routing.AppendRows(nil, sealIn(t, placed{"1"}, envelope.Context{
		IdempotencyKey: "a key", TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "vendor=a:1",
	}))
	require.NoError(t, err)
	require.Len(t, rows, 8)
	found := map[string]string{}
	for _, row := range rows {
		for _, part := range []string{`"fqn"`, `"idempotency_key":"a key"`, `:null`, `"tracestate":"vendor=a:1"`} {
			if strings.Contains(string(row.Payload), part) {
				found[row.TargetBroker] += part + " "
			}
		}
		if strings.Contains(row.Headers, "tracestate") {
			found[row.TargetBroker] += "beside it"
		}
		assert.Contains(t, row.Headers, "traceparent", row.TargetBroker)
		assert.Equal(t, strings.Contains(row.Headers, "region"), row.TargetBroker == "fqn" || row.TargetBroker == "lean static", row.TargetBroker)
	}
	assert.Equal(t, map[string]string{
		"default":       `"fqn" "idempotency_key":"a key" :null beside it`,
		"whole":         `"fqn" "idempotency_key":"a key" :null beside it`,
		"fqn":           `"fqn" `,
		"traced events": `"tracestate":"vendor=a:1" beside it`,
	}, found)
	routing.External[5].Include = envelope.Include{Nulls: true}
	require.ErrorContains(t, routing.Validate(), `external broker "events": of what Include names, format cloudevents has TraceState alone`)
}

// What an event gives functions for is in the rows of all its brokers: what goes beside it before what a broker's messages
// have by the configuration, and the destination in place of the stream category.
func TestHeadersAndDestinationOfAnEvent(t *testing.T) {
	t.Parallel()
	routing := outbox.Routing{External: []outbox.Route{
		{Broker: "plain"},
		{Broker: "overridden", Overrides: outbox.Overrides{Destination: "eu.{stream}", Attributes: map[string]string{"country": "DE", "region": "eu"}}},
	}}.WithDefaults()
	require.NoError(t, routing.Validate())
	rows, err := routing.AppendRows(nil, seal(t, placed{"7"}, envelope.Header("country", func(p placed) string { return "SE-" + p.ID }),
		envelope.Destination(func(p placed) string { return "depot" + p.ID })))
	require.NoError(t, err)
	require.Len(t, rows, 3)
	for i, want := range []struct{ destination, headers string }{
		{"depot7", `{"country":"SE-7"}`}, {"depot7", `{"country":"SE-7"}`}, {"eu.depot7", `{"country":"SE-7","region":"eu"}`},
	} {
		assert.Equal(t, want.destination, rows[i].Stream)
		assert.JSONEq(t, want.headers, rows[i].Headers)
	}
}

func TestRoutingValidate(t *testing.T) {
	t.Parallel()
	err := outbox.Routing{Table: "x; DROP TABLE y", MaxPayloadBytes: -1, External: []outbox.Route{
		{Broker: ""}, {Broker: "default"}, {Broker: "a"}, {Broker: "a", Format: "xml"}, {Broker: "c", Types: []string{"["}},
	}}.Validate()
	for _, text := range []string{
		"table name", "max_payload_bytes is -1", "external broker 1 has no name", `internal broker "default" is also listed as external`,
		`duplicate external broker "a"`, `format "xml"`, `filter "["`,
	} {
		require.ErrorContains(t, err, text)
	}
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	routing := outbox.Routing{
		Internal: outbox.Overrides{Destination: "all", ContentType: "application/vnd.acme+json"},
		External: []outbox.Route{
			{Broker: "plain"},
			{Broker: "topics", Overrides: outbox.Overrides{
				Destination: "{context}.{aggregate}/{type}?{stream}", TTL: time.Hour, Attributes: map[string]string{"environment": "production", "a": `"`},
			}},
			{Broker: "events", Format: envelope.FormatCloudEvents, Overrides: outbox.Overrides{Destination: "e"}},
		},
	}.WithDefaults()
	require.NoError(t, routing.Validate())

	message := seal(t, placed{"1"})
	rows, err := routing.AppendRows(nil, message)
	require.NoError(t, err)
	assert.Equal(t, "all", rows[0].Stream)
	assert.Equal(t, "application/vnd.acme+json", rows[0].ContentType)
	assert.Equal(t, outbox.Row{
		MessageID: rows[1].MessageID, TargetBroker: "plain", Stream: "ordering::order", Type: "Ordering.Placed.v1", OrderingKey: "ordering::order-1",
		Payload: rows[1].Payload, ContentType: "application/json", AggregateType: "Order", AggregateID: "1", CorrelationID: rows[0].MessageID.String(),
	}, rows[1], "what one broker has concerns no other")
	assert.Equal(t, "ordering.order/Ordering.Placed.v1?ordering::order", rows[2].Stream)
	assert.Equal(t, message.Metadata.Headers.Time.Add(time.Hour), rows[2].ExpiresAt)
	assert.JSONEq(t, `{"a":"\"","environment":"production"}`, rows[2].Headers)
	assert.Same(t, &rows[1].Payload[0], &rows[2].Payload[0])
	assert.Equal(t, "application/cloudevents+json", rows[3].ContentType)
	for _, row := range rows {
		assert.Equal(t, "ordering::order-1", row.OrderingKey, "another destination is no other key")
	}

	rows, err = routing.AppendRows(nil, seal(t, expiring{"1"}))
	require.NoError(t, err)
	assert.Equal(t, rows[0].ExpiresAt, rows[2].ExpiresAt, "the shorter TTL holds")

	events := envelope.NewCatalog("ordering")
	envelope.Register[placed](events, envelope.Published())
	message, err = events.Seal(envelope.NewEvent(placed{"1"}), envelope.Source{}, envelope.Context{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	require.NoError(t, err)
	rows, err = routing.AppendRows(nil, message)
	require.NoError(t, err)
	assert.Equal(t, "ordering.ordering/Ordering.placed.v1?ordering", rows[2].Stream, "an event without an aggregate")
	assert.JSONEq(t, `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`, rows[1].Headers)
	assert.JSONEq(t, `{"a":"\"","environment":"production","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`, rows[2].Headers)
}

// A broker's TTL begins when the event may be sent, as the event's own does: one that is scheduled
// for later is no stillbirth.
func TestOverridesTTLOfAScheduledEvent(t *testing.T) {
	t.Parallel()
	at := time.Now().UTC().Add(48 * time.Hour).Truncate(time.Microsecond)
	events := envelope.NewCatalog("ordering")
	envelope.Register[placed](events, envelope.Published(), envelope.NotBefore(func(placed) time.Time { return at }))
	envelope.Register[audited](events, envelope.Published(), envelope.NotBefore(func(audited) time.Time { return time.Unix(1, 0) }))
	require.NoError(t, events.Err())
	routing := outbox.Routing{External: []outbox.Route{{Broker: "b", Overrides: outbox.Overrides{TTL: time.Hour}}}}.WithDefaults()

	message, err := events.Seal(envelope.NewEvent(placed{"1"}), envelope.Source{}, envelope.Context{})
	require.NoError(t, err)
	rows, err := routing.AppendRows(nil, message)
	require.NoError(t, err)
	assert.Zero(t, rows[0].ExpiresAt)
	assert.Equal(t, at, rows[1].AvailableAt)
	assert.Equal(t, at.Add(time.Hour), rows[1].ExpiresAt)

	message, err = events.Seal(envelope.NewEvent(audited{"1"}), envelope.Source{}, envelope.Context{})
	require.NoError(t, err)
	rows, err = routing.AppendRows(nil, message)
	require.NoError(t, err)
	assert.Equal(t, message.Metadata.Headers.Time.Add(time.Hour), rows[1].ExpiresAt)
}

func TestCheckAttribute(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"environment": "production", "x-region": "Provence, à \"Côte d'Azur\"", "empty": ""} {
		require.NoError(t, outbox.ValidateAttribute(name, value), name)
	}
	for name, value := range map[string]string{
		"a\x00": "x", "b": "x\x00", "c\r\nd": "x", "e": "x\r\nid: 1", "f\xff": "x", "g": "\xff", "data": "x", "ordering_key": "x", "id": "x", "type": "x", "tracestate": "x", "signature": "x",
	} {
		require.Error(t, outbox.ValidateAttribute(name, value), "%q: %q", name, value)
	}
}

func TestOverridesValidate(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range outbox.MaxAttributes + 1 {
		many[strconv.Itoa(i)] = ""
	}
	err := outbox.Routing{
		Internal: outbox.Overrides{Destination: "{streem}", TTL: -1, ContentType: "json", Attributes: many},
		External: []outbox.Route{{Broker: "e", Format: envelope.FormatCloudEvents, Overrides: outbox.Overrides{
			ContentType: "a/b", Attributes: map[string]string{"traceparent": "x", "signature": "x", "": "x", "googtopic": "x", "long": strings.Repeat("x", 1025)},
		}}},
	}.Validate()
	for _, text := range []string{
		`broker "default": destination: {streem} is no placeholder`, `broker "default": ttl: is -1ns`, `broker "default": content_type: "json" is not a media type`,
		`broker "default": attributes: there are 51: use at most 50`, `broker "e": content_type: does not go together with format cloudevents`,
		`"traceparent" is a field`, `"signature" is a field`, "has an empty name", `"googtopic" begins with goog`, `"long" is too long`,
	} {
		require.ErrorContains(t, err, text)
	}
}

type (
	originCause  struct{}
	originEffect struct{}
)

// The stream of a cause leaves only to brokers that get messages such as the cause.
func TestOriginStreamLeavesWhereTheCauseDid(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("sales")
	envelope.Register[originCause](events, envelope.Name("Cause"), envelope.To("a", "c", "d"),
		envelope.Published(envelope.As(func(originCause) int { return 1 }, envelope.To("a", "b", "c"))))
	envelope.Register[originEffect](events, envelope.Name("Effect"), envelope.Published())
	require.NoError(t, events.Err())
	var routing outbox.Routing
	for _, broker := range []string{"a", "b", "c", "d"} {
		routing.External = append(routing.External, outbox.Route{Broker: broker, Include: envelope.Include{OriginStream: true}})
	}
	routing.External[2].Types = []string{"*.Effect.*"}
	cause, err := events.Seal(envelope.NewEvent(originCause{}), envelope.Source{Aggregate: "Secret", ID: "1"}, envelope.Context{})
	require.NoError(t, err)
	effect, err := events.Seal(envelope.NewEvent(originEffect{}), envelope.Source{}, envelope.FromContext(envelope.WithCause(t.Context(), cause)))
	require.NoError(t, err)
	rows, err := routing.WithDefaults().AppendRows(nil, effect)
	require.NoError(t, err)
	told := map[string]bool{}
	for _, row := range rows {
		told[row.TargetBroker] = strings.Contains(string(row.Payload), "sales::secret-1")
	}
	assert.Equal(t, map[string]bool{"default": true, "a": true, "b": false, "c": false, "d": false}, told)
}
