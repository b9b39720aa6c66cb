package protobuf_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/contract"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/protobuf"
	"github.com/gorm-fanout/fanout/protobuf/internal/shop"
)

var contractRouting = outbox.Routing{External: []outbox.Route{
	{Broker: "native"}, {Broker: "events", Format: envelope.FormatCloudEvents}, {Broker: "json", JSON: true},
}}

func contractEvents() *envelope.Catalog {
	events := envelope.NewCatalog("ordering")
	protobuf.Register[*shop.OrderPlaced](events, envelope.Published(), envelope.Header("region", func(*shop.OrderPlaced) string { return "eu" }))
	envelope.Register[Placed](events, envelope.Published(protobuf.As(func(Placed) *shop.Everything { return new(shop.Everything) })))
	return events
}

// The file in the repository, as fanouttest keeps it. Run the test with FANOUT_UPDATE_GOLDEN=1 after a change that is meant.
func TestContract(t *testing.T) {
	t.Parallel()
	fanouttest.Contract(t, contractEvents(), contractRouting, "testdata/contract.json")
}

// A change of the message is breaking or compatible by what a reader of the form gets: by numbers and types of binary data, by
// names of JSON.
func TestChanges(t *testing.T) {
	t.Parallel()
	var current contract.Document
	require.NoError(t, current.Describe(contractEvents(), contractRouting))
	text, err := json.Marshal(&current)
	require.NoError(t, err)
	const field = `"3":{"type":"int64","name":"total_cents"}`
	for name, c := range map[string]struct {
		before, after        string // in the file of before, and of now
		breaking, compatible string
	}{
		"nothing":           {before: field, after: field},
		"type changed":      {`"3":{"type":"int32","name":"total_cents"}`, field, "3 (total_cents): type changed from int32 to int64", ""},
		"number changed":    {`"13":{"type":"int64","name":"total_cents"}`, field, "13 (total_cents): removed", "3 (total_cents): added"},
		"field removed":     {field + `,"30":{"type":"bool","name":"gift"}`, field, "30 (gift): removed", ""},
		"field added":       {field + ",", "", "", "3 (total_cents): added"},
		"field renamed":     {`"3":{"type":"int64","name":"total"}`, field, "", "3 (total): renamed to total_cents, which readers of the encoding do not see"},
		"optional":          {`"3":{"type":"optional int64","name":"total_cents"}`, field, "3 (total_cents): type changed from optional int64 to int64", ""},
		"enum widened":      {`"type":"0, 1","name":"STATUS_UNSPECIFIED, STATUS_PLACED"`, `"type":"0, 1, 2","name":"STATUS_UNSPECIFIED, STATUS_PLACED, STATUS_PAID"`, "values (STATUS_UNSPECIFIED, STATUS_PLACED): type changed from 0, 1 to 0, 1, 2", "renamed to"},
		"renamed message":   {`proto=shop.v1.Order"`, `proto=shop.v1.OrderPlaced"`, `content type changed from "application/protobuf; proto=shop.v1.Order" to "application/protobuf; proto=shop.v1.OrderPlaced"`, ""},
		"JSON name changed": {`"total":{"type":"string","format":"int64"}`, `"totalCents":{"type":"string","format":"int64"}`, "json: Ordering.OrderPlaced.v1: data.total: removed", "json: Ordering.OrderPlaced.v1: data.totalCents: added"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := c.after
			if now == "" { // the field is not there
				now, c.before = field, ""
				require.Contains(t, string(text), field+",")
				now += ","
			}
			require.Contains(t, string(text), now)
			var before contract.Document
			require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(string(text), now, c.before)), &before))
			breaking, compatible, err := before.Changes(&current)
			require.NoError(t, err)
			for _, of := range []struct {
				want string
				got  []string
			}{{c.breaking, breaking}, {c.compatible, compatible}} {
				if of.want == "" {
					assert.Empty(t, of.got)
				} else {
					assert.Contains(t, strings.Join(of.got, "\n"), of.want)
				}
			}
		})
	}
	// From JSON to Protobuf, and back.
	var asJSON contract.Document
	require.NoError(t, asJSON.Describe(contractEvents(), outbox.Routing{External: []outbox.Route{
		{Broker: "native", JSON: true}, {Broker: "events", Format: envelope.FormatCloudEvents, JSON: true}, {Broker: "json", JSON: true},
	}}))
	breaking, _, err := asJSON.Changes(&current)
	require.NoError(t, err)
	assert.Contains(t, breaking, `native: Ordering.OrderPlaced.v1: content type changed from "application/json" to "`+placedType+`"`)
	assert.Contains(t, breaking, `events: Ordering.OrderPlaced.v1: content type changed from "application/json" to "`+placedType+`"`)
}

// AsyncAPI has the content type, and what the bytes hold.
func TestAsyncAPI(t *testing.T) {
	t.Parallel()
	var d contract.Document
	require.NoError(t, d.Describe(contractEvents(), contractRouting))
	text, err := d.AsyncAPI("1.0.0")
	require.NoError(t, err)
	var api struct {
		Components struct {
			Messages map[string]struct {
				ContentType string
				Headers     struct{ Properties map[string]any }
				Payload     map[string]any
				Layout      map[string]any `json:"x-layout"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &api))
	native := api.Components.Messages["native.Ordering.OrderPlaced.v1"]
	assert.Equal(t, placedType, native.ContentType)
	assert.Equal(t, map[string]any{"$ref": "#/components/schemas/native.Ordering.OrderPlaced.v1"}, native.Payload)
	for _, name := range []string{"id", "type", "content-type", "time", "sequence_id", "causation_id", "region"} {
		assert.Contains(t, native.Headers.Properties, name)
	}
	assert.Contains(t, native.Layout, "shop.v1.OrderPlaced")
	event := api.Components.Messages["events.Ordering.OrderPlaced.v1"]
	assert.Equal(t, "application/cloudevents+json", event.ContentType)
	assert.Contains(t, event.Payload["properties"], "data_base64")
	assert.NotContains(t, event.Payload["properties"], "data")
	assert.Equal(t, map[string]any{"type": "string", "const": placedType}, event.Payload["properties"].(map[string]any)["datacontenttype"])
	asJSON := api.Components.Messages["json.Ordering.OrderPlaced.v1"]
	assert.Equal(t, "application/json", asJSON.ContentType)
	assert.Empty(t, asJSON.Layout)
}
