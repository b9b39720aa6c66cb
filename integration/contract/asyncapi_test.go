package contract_test

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/contract"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// asyncAPISchema is that of AsyncAPI 3.0.0: schemas/3.0.0.json of the npm package @asyncapi/specs
// 6.11.1 (https://github.com/asyncapi/spec-json-schemas, Apache-2.0), without white space.
//
//go:embed testdata/asyncapi-3.0.0.json.gz
var asyncAPISchema []byte

type (
	orderPlaced struct {
		OrderID string `json:"order_id"`
		Total   int64  `json:"total"`
		Lines   []line `json:"lines"`
	}
	line struct {
		SKU   string  `json:"sku"`
		Parts []*line `json:"parts,omitempty"`
	}
	moved map[string]*tree
)

func shop() (*envelope.Catalog, outbox.Routing) {
	events := envelope.NewCatalog("ordering")
	envelope.Register[orderPlaced](events, envelope.Published())
	envelope.Register[tree](events, envelope.Published(), envelope.Name("TreeGrown"))
	envelope.Register[moved](events, envelope.Published(), envelope.Name("Moved"))
	return events, outbox.Routing{External: []outbox.Route{
		{
			Broker: "partner", Extensions: []string{"tenant_id", "region"},
			Overrides: outbox.Overrides{Destination: "acme.{aggregate}", Attributes: map[string]string{"site": "eu"}},
		},
		{Broker: "plain", Overrides: outbox.Overrides{ContentType: "application/vnd.acme+json"}},
		{Broker: "audit", Format: envelope.FormatCloudEvents, Extensions: []string{"tenant_id", "region"}},
		{Broker: "events", Format: envelope.FormatCloudEvents, Source: "https://shop.example.com", Types: []string{"*Placed*"}},
	}}.WithDefaults()
}

// written is the AsyncAPI document of the shop.
func written(t *testing.T) any {
	t.Helper()
	events, routing := shop()
	var d contract.Document
	require.NoError(t, d.Describe(events, routing))
	text, err := d.AsyncAPI("1.0.0")
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return document
}

func TestAsyncAPIIsValid(t *testing.T) {
	t.Parallel()
	zipped, err := gzip.NewReader(bytes.NewReader(asyncAPISchema))
	require.NoError(t, err)
	schema, err := jsonschema.UnmarshalJSON(zipped)
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("http://asyncapi.com/definitions/3.0.0/asyncapi.json", schema))
	compiled, err := compiler.Compile("http://asyncapi.com/definitions/3.0.0/asyncapi.json")
	require.NoError(t, err)
	document := written(t)
	require.NoError(t, compiled.Validate(document))

	document.(map[string]any)["channels"].(map[string]any)["partner"].(map[string]any)["address"] = 1
	require.Error(t, compiled.Validate(document), "it would take anything")
}

// What commits write is what the document says, message for message and header for header.
func TestMessagesAreAsDescribed(t *testing.T) {
	t.Parallel()
	events, routing := shop()
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7)
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("urn:document", written(t)))

	ctx := envelope.WithCorrelationID(context.Background(), "checkout-7")
	ctx = envelope.WithTenantID(envelope.WithCausationID(ctx, "cause-1"), "acme")
	rich := envelope.FromContext(ctx)
	rich.TraceParent, rich.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b"
	rich.SetExtension("region", 7)
	seen := map[string]int{}
	for _, data := range []any{
		orderPlaced{},
		orderPlaced{OrderID: "1", Lines: []line{{Parts: []*line{nil, {SKU: "a"}}}}},
		tree{},
		tree{Left: &tree{Right: &tree{}}},
		moved{},
		moved{"a": nil, "b": {Left: &tree{}}},
	} {
		for _, src := range []envelope.Source{{}, {Aggregate: "Order", ID: "42"}, {Aggregate: "OrderLine", ID: "4,2", Version: 3, Sequence: 1}} {
			for _, cx := range []envelope.Context{{}, rich} {
				for _, options := range [][]envelope.Option{nil, {envelope.TTL(time.Hour), envelope.Unordered()}} {
					message, err := events.Seal(envelope.NewEvent(data, options...), src, cx)
					require.NoError(t, err)
					rows, err := routing.AppendRows(nil, message)
					require.NoError(t, err)
					for i := range rows[1:] {
						row := &rows[1+i]
						payload, err := compiler.Compile("urn:document#/components/messages/" + row.TargetBroker + "." + row.Type + "/payload")
						require.NoError(t, err)
						instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(row.Payload))
						require.NoError(t, err)
						require.NoError(t, payload.Validate(instance), string(row.Payload))
						seen[row.TargetBroker]++

						headers, err := compiler.Compile("urn:document#/components/messages/" + row.TargetBroker + "." + row.Type + "/headers")
						require.NoError(t, err)
						require.NoError(t, headers.Validate(fieldsOf(t, row)))
					}
				}
			}
		}
	}
	assert.Equal(t, map[string]int{"partner": 72, "plain": 72, "audit": 72, "events": 24}, seen)
}

// fieldsOf are the flat fields that a broker sends beside the payload.
func fieldsOf(t *testing.T, row *outbox.Row) map[string]any {
	t.Helper()
	m := brokers.Message{
		ID: row.MessageID.String(), Type: row.Type, OrderingKey: row.OrderingKey, CorrelationID: row.CorrelationID, ContentType: row.ContentType,
	}
	if row.Headers != "" {
		var err error
		m.Attributes, err = outbox.ParseHeaders(row.Headers)
		require.NoError(t, err)
	}
	fields := map[string]any{}
	for name, value := range m.Fields {
		fields[name] = value
	}
	return fields
}
