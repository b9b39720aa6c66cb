package protobuf_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/protobuf"
	"github.com/gorm-fanout/fanout/protobuf/internal/shop"
)

// The bytes of placed(), made by hand from the .proto file and the documents of Protobuf.
const (
	placedJSON = `{"orderId":"42","customer":"Ada <ß☃>","totalCents":"9007199254740993","status":"STATUS_PLACED",` +
		`"lines":[{"sku":"a","quantity":2},{}],"note":"","labels":{"a":"1","b":"2","c":""},"placedAt":"2026-11-27T19:30:00.123456Z","voucher":"AP8="}`
	placedHex = "0a023432" + "120b416461203cc39fe298833e" + "188180808080808010" + "2001" + // order_id, customer, total_cents, status
		"2a050a01611002" + "2a00" + "3200" + // lines, note
		"3a060a0161120131" + "3a060a0162120132" + "3a050a01631200" + // labels, by their keys
		"420b08b8b4a7d806108094ef3a" + "520200ff" // placed_at, voucher
	placedType = "application/protobuf; proto=shop.v1.OrderPlaced"
)

// seal makes the message of one event.
func seal(t *testing.T, event any) *envelope.Message {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	protobuf.Register[*shop.OrderPlaced](events, envelope.Published())
	require.NoError(t, events.Err())
	raised := envelope.Event{ID: uuid.MustParse("0199c0de-0000-7000-8000-000000000001"), Time: time.Date(2026, 11, 27, 19, 30, 1, 0, time.UTC), Data: event}
	m, err := events.Seal(raised, envelope.Source{Aggregate: "Order", ID: "42", Version: 7, Sequence: 1},
		envelope.Context{CorrelationID: "correlation", CausationID: "cause", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	require.NoError(t, err)
	return m
}

// Each form, byte for byte. protojson puts white space at random, by a hash of the program: none is left.
func TestForms(t *testing.T) {
	t.Parallel()
	binary, err := hex.DecodeString(placedHex)
	require.NoError(t, err)
	m := seal(t, placed())
	rows, err := outbox.Routing{External: []outbox.Route{
		{Broker: "native", Overrides: outbox.Overrides{ContentType: "application/vnd.acme+json", Attributes: map[string]string{"region": "eu"}}},
		{Broker: "events", Format: envelope.FormatCloudEvents},
		{Broker: "native json", JSON: true, Overrides: outbox.Overrides{ContentType: "application/vnd.acme+json"}},
		{Broker: "events json", Format: envelope.FormatCloudEvents, JSON: true},
	}}.WithDefaults().AppendRows(nil, m)
	require.NoError(t, err)
	require.Len(t, rows, 5)
	const (
		id     = `"0199c0de-0000-7000-8000-000000000001"`
		parent = `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`
		event  = `{"specversion":"1.0","id":` + id + `,"source":"/ordering/order","type":"Ordering.OrderPlaced.v1","subject":"42","time":"2026-11-27T19:30:01.000000Z",` +
			`"datacontenttype":"%TYPE%","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","partitionkey":"ordering::order-42",` +
			`"sequence":"0000000000000000007.0000000001","correlationid":"correlation","causationid":"cause",`
	)
	for i, want := range []struct{ contentType, headers, payload string }{
		{"application/json", parent, `{"data":` + placedJSON + `,"metadata":{"headers":{"id":` + id + `,"time":"2026-11-27T19:30:01.000000Z",` +
			`"type":"Ordering.OrderPlaced.v1","stream":"ordering::order-42","traceparent":{"trace_id":"0af7651916cd43dd8448eb211c80319c","parent_id":"b7ad6b7169203331","sampled":true},` +
			`"idempotency_key":null,"deadline":null},"envelope":{"specversion":"1.0","checksum":"` + m.Metadata.Envelope.Checksum + `"},` +
			`"domain":{"fqn":"github.com/gorm-fanout/fanout/protobuf/internal/shop.OrderPlaced","kind":"EVENT","origin_stream":null,"stream_category":"ordering::order","version":1,` +
			`"sequence_id":"7.1","asynchronous":true,"expected_version":null,"priority":0,"correlation_id":"correlation","causation_id":"cause"},"event_store":null,"extensions":{}}}`},
		{placedType, `{"causation_id":"cause","region":"eu","sequence_id":"7.1","time":"2026-11-27T19:30:01.000000Z",` + parent[1:], string(binary)},
		{"application/cloudevents+json", parent, strings.Replace(event, "%TYPE%", placedType, 1) + `"data_base64":"` + base64.StdEncoding.EncodeToString(binary) + `"}`},
		{"application/vnd.acme+json", parent, `{"data":` + placedJSON + `,"metadata":{"headers":{"id":` + id + `,"time":"2026-11-27T19:30:01.000000Z",` +
			`"type":"Ordering.OrderPlaced.v1","stream":"ordering::order-42","traceparent":{"trace_id":"0af7651916cd43dd8448eb211c80319c","parent_id":"b7ad6b7169203331","sampled":true}},` +
			`"domain":{"kind":"EVENT","stream_category":"ordering::order","version":1,"sequence_id":"7.1","correlation_id":"correlation","causation_id":"cause"},"envelope":{"specversion":"1.0"}}}`},
		{"application/cloudevents+json", parent, strings.Replace(event, "%TYPE%", "application/json", 1) + `"data":` + placedJSON + `}`},
	} {
		assert.Equal(t, want.contentType, rows[i].ContentType, rows[i].TargetBroker)
		assert.Equal(t, want.headers, rows[i].Headers, rows[i].TargetBroker)
		assert.Equal(t, want.payload, string(rows[i].Payload), rows[i].TargetBroker)
	}
	require.NoError(t, m.VerifyChecksum())
}

// The bound on a payload is one on the bytes that travel.
func TestTheBytesThatTravelAreBounded(t *testing.T) {
	t.Parallel()
	big := &shop.OrderPlaced{Payment: &shop.OrderPlaced_Voucher{Voucher: make([]byte, 1000)}}
	routing := outbox.Routing{External: []outbox.Route{{Broker: "partner"}}, MaxPayloadBytes: 1600}
	_, err := routing.WithDefaults().AppendRows(nil, seal(t, big))
	require.ErrorContains(t, err, `for broker "default", over max_payload_bytes (1600)`, "base64 within JSON")
	routing.MaxPayloadBytes = 2200
	rows, err := routing.WithDefaults().AppendRows(nil, seal(t, big))
	require.NoError(t, err)
	assert.Len(t, rows[1].Payload, 1003)
}

// What is no complete message fails the transaction that raises it, and the error says where that was.
func TestUnfitMessagesFailTheTransaction(t *testing.T) {
	t.Parallel()
	cyclic := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	cyclic.Fields["a"] = structpb.NewNumberValue(0)
	cyclic.Fields["a"].GetKind().(*structpb.Value_NumberValue).NumberValue = nan()
	for name, c := range map[string]struct {
		event any
		says  []string
	}{
		"nil":                   {(*shop.OrderPlaced)(nil), []string{"encode Ordering.OrderPlaced.v1", placedType, "a *shop.OrderPlaced, is nil"}},
		"no UTF-8":              {&shop.OrderPlaced{Customer: "\xff"}, []string{"encode Ordering.OrderPlaced.v1", "invalid UTF-8"}},
		"required":              {&shop.Legacy{}, []string{"encode Ordering.Legacy.v1", "required field shop.v1.Legacy.id not set"}},
		"unknown Any":           {&shop.Everything{T: &anypb.Any{TypeUrl: "a/b.C"}}, []string{"encode Ordering.Everything.v1", `unable to resolve "a/b.C"`}},
		"no JSON":               {cyclic, []string{"encode Ordering.Struct.v1", "invalid NaN value"}},
		"nil as":                {Placed{"nil", ""}, []string{"encode Ordering.Placed.v1", "as *shop.OrderPlaced (Ordering.Placed.v1)", "is nil"}},
		"no UTF-8 as":           {Placed{"1", "\xff"}, []string{"as *shop.OrderPlaced (Ordering.Placed.v1)", "invalid UTF-8"}},
		"panic in the function": {Placed{"panic", ""}, []string{"as *shop.OrderPlaced (Ordering.Placed.v1)", "panic: no such order"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := envelope.NewCatalog("ordering")
			protobuf.Register[*shop.OrderPlaced](events, envelope.Published())
			protobuf.Register[*shop.Legacy](events)
			protobuf.Register[*shop.Everything](events)
			protobuf.Register[*structpb.Struct](events)
			envelope.Register[Placed](events, envelope.Published(protobuf.As(func(e Placed) *shop.OrderPlaced {
				switch e.OrderID {
				case "nil":
					return nil
				case "panic":
					panic("no such order")
				}
				return &shop.OrderPlaced{Customer: e.Customer}
			})))
			db := fanouttest.Open(t, events, &Order{})
			order := &Order{ID: "42"}
			order.Raise(c.event)
			err := db.Create(order).Error
			for _, text := range append(c.says, "forms_test.go:") {
				assert.ErrorContains(t, err, text)
			}
			var encode *envelope.EncodeError
			require.ErrorAs(t, err, &encode)
			var rows int64
			require.NoError(t, db.Table("outbox_messages").Count(&rows).Error)
			assert.Zero(t, rows)
		})
	}
}

// What cannot work is said when events are registered, with the line to write.
func TestRegistrations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		register func(events *envelope.Catalog)
		says     string
	}{
		"a message without its encoding": {
			func(events *envelope.Catalog) { envelope.Register[*shop.OrderPlaced](events) },
			"write protobuf.Register[*shop.OrderPlaced](events)",
		},
		"a contract without its encoding": {
			func(events *envelope.Catalog) {
				envelope.Register[Placed](events, envelope.Published(envelope.As(func(Placed) *shop.OrderPlaced { return nil })))
			},
			"write protobuf.As in place of envelope.As",
		},
		"an interface": {
			func(events *envelope.Catalog) { protobuf.Register[proto.Message](events) },
			"events are found by their concrete type, which an interface is not",
		},
		"a content type that is too long": {
			func(events *envelope.Catalog) {
				kind := "application/protobuf; proto=" + strings.Repeat("x", 300)
				envelope.Register[Placed](events, envelope.Encoding{ContentType: kind, Marshal: func(any) ([]byte, error) { return nil, nil }})
			},
			"has 328 bytes, the most is 256",
		},
		"a content type of JSON": {
			func(events *envelope.Catalog) {
				envelope.Register[Placed](events, envelope.Encoding{ContentType: "application/json", Marshal: func(any) ([]byte, error) { return nil, nil }})
			},
			"leave the option out for JSON",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := envelope.NewCatalog("ordering")
			c.register(events)
			require.ErrorContains(t, events.Err(), c.says)
		})
	}
	events := envelope.NewCatalog("ordering")
	_, err := events.Lookup(new(shop.OrderPlaced))
	var unregistered *envelope.UnregisteredError
	require.ErrorAs(t, err, &unregistered)
	require.ErrorContains(t, err, "add protobuf.Register[*shop.OrderPlaced](events)")
	protobuf.Register[*shop.OrderPlaced](events)
	require.NoError(t, errors.Join(events.Err(), errors.Join(events.Warnings()...)))
}

// Options of an event take the message, as it is when it is raised.
func TestOptionsTakeTheMessage(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("ordering")
	protobuf.Register[*shop.OrderPlaced](events, envelope.Name("Placed"), envelope.Version(2), envelope.Published(),
		envelope.Key(func(e *shop.OrderPlaced) string { return e.GetCustomer() }))
	require.NoError(t, events.Err())
	m := &shop.OrderPlaced{Customer: "ada"}
	event := envelope.NewEvent(m)
	m.Customer = "mallory"
	sealed, err := events.Seal(event, envelope.Source{}, envelope.Context{})
	require.NoError(t, err)
	assert.Equal(t, "ada", sealed.Routing.OrderingKey)
	assert.Equal(t, "Ordering.Placed.v2", sealed.Metadata.Headers.Type)
	data, contentType, err := sealed.MarshalData()
	require.NoError(t, err)
	assert.Equal(t, "\x12\x03ada", string(data))
	assert.Equal(t, placedType, contentType)
	back, err := events.Unmarshal("Ordering.Placed.v2", sealed.Data)
	require.NoError(t, err)
	assert.True(t, proto.Equal(&shop.OrderPlaced{Customer: "ada"}, back.(*shop.OrderPlaced)))
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}
