package contract_test

import (
	"embed"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/contract"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

//go:embed testdata
var golden embed.FS

type (
	OrderPlaced struct {
		OrderID  string            `json:"order_id"`
		Total    int64             `json:"total"`
		Currency string            `json:"currency"         jsonschema:"enum=EUR,enum=USD"`
		Note     *string           `json:"note,omitempty"`
		Lines    []Line            `json:"lines"`
		Labels   map[string]string `json:"labels,omitempty"`
	}
	Line struct {
		SKU      string `json:"sku"`
		Quantity int
		Parts    []*Line `json:"parts,omitempty"`
	}
	OrderShipped struct{ OrderID string }
	StockCounted struct{}
	category     struct {
		Name string      `json:"name"`
		Sub  []*category `json:"sub"`
	}
)

// shop has what a contract can have: several brokers, formats, filters and keys.
func shop() side {
	return side{
		func(events *envelope.Catalog) {
			envelope.Register[OrderPlaced](events, envelope.Published())
			envelope.Register[OrderShipped](events, envelope.Published(), envelope.To("partner"), envelope.Key(func(o OrderShipped) string { return o.OrderID }))
			envelope.Register[StockCounted](events)
			envelope.Register[category](events, envelope.Published(), envelope.Name("CategoryChanged"), envelope.Version(2), envelope.Unordered())
		},
		routes(
			outbox.Route{
				Broker: "partner", Extensions: []string{"tenant_id", "region"},
				Overrides: outbox.Overrides{Destination: "acme.{context}.{aggregate}", Attributes: map[string]string{"site": "eu"}},
			},
			outbox.Route{
				Broker: "audit", Format: envelope.FormatCloudEvents, Types: []string{"Ordering.Order*", "Ordering.Category*"}, Source: "https://shop.example.com",
				Extensions: []string{"tenant_id", "region"}, Overrides: outbox.Overrides{Destination: "audit.{type}"},
			},
		),
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	d := shop().describe(t)
	text, err := json.MarshalIndent(d, "", "  ")
	require.NoError(t, err)
	testenv.Golden(t, golden, "testdata/shop.json", string(text)+"\n")
	assert.Equal(t, []string{
		"contract_test.Line.Quantity has no JSON name: it leaves as \"Quantity\", and renaming the field breaks its readers; give it a tag `json:\"...\"`",
		"contract_test.OrderShipped.OrderID has no JSON name: it leaves as \"OrderID\", and renaming the field breaks its readers; give it a tag `json:\"...\"`",
	}, d.Warnings())
}

// The schema has the names that leave: data of samples is valid by it, and no name is warned of.
func TestDescribeCamelCase(t *testing.T) {
	t.Parallel()
	type part struct {
		SKU    string
		Nested map[string]*part
	}
	type base struct{ BaseID string }
	type placed struct {
		base

		OrderID string
		Named   int `json:"named_by_hand"`
		Parts   []part
		Note    *string `json:",omitempty"`
		Any     any
		At      time.Time
	}
	data := placed{base{"1"}, "2", 3, []part{{"4", map[string]*part{"SKU": {SKU: "5"}}}}, nil, base{"6"}, time.Unix(1, 0)}
	public := func(p placed) []part { return p.Parts }
	for _, options := range [][]envelope.CatalogOption{nil, {envelope.WithCamelCase()}} {
		events := envelope.NewCatalog("ordering", options...)
		envelope.Register[placed](events, envelope.Name("Placed"), envelope.Published(envelope.As(public, envelope.Name("Parts")), envelope.As(func(p placed) placed { return p })))
		d := new(contract.Document)
		require.NoError(t, d.Describe(events, routes(outbox.Route{Broker: "partner"})))
		if len(options) > 0 {
			assert.Empty(t, d.Warnings())
		} else {
			assert.NotEmpty(t, d.Warnings())
		}
		sealed, err := events.Seal(envelope.NewEvent(data), envelope.Source{}, envelope.Context{})
		require.NoError(t, err)
		text, err := json.Marshal(d)
		require.NoError(t, err)
		var file struct {
			Brokers map[string]struct {
				Types map[string]struct {
					Data json.RawMessage `json:"data"`
				} `json:"types"`
			} `json:"brokers"`
		}
		require.NoError(t, json.Unmarshal(text, &file))
		leaving := sealed.AppendExternal(nil, "partner")
		require.Len(t, leaving, 2)
		for _, m := range leaving {
			schema := file.Brokers["partner"].Types[m.Metadata.Headers.Type].Data
			checkNames(t, schema, schema, m.Data)
		}
	}
}

// checkNames checks that objects in data have the members that a schema requires, and no others.
func checkNames(t *testing.T, root, schema, data json.RawMessage) {
	t.Helper()
	var s struct {
		Ref        string                     `json:"$ref"`
		Defs       map[string]json.RawMessage `json:"$defs"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		Items      json.RawMessage            `json:"items"`
		Additional json.RawMessage            `json:"additionalProperties"`
		AnyOf      []json.RawMessage          `json:"anyOf"`
	}
	require.NoError(t, json.Unmarshal(schema, &s))
	switch {
	case string(data) == "null":
		return
	case s.Ref == "#":
		checkNames(t, root, root, data)
		return
	case s.Ref != "":
		var top struct {
			Defs map[string]json.RawMessage `json:"$defs"`
		}
		require.NoError(t, json.Unmarshal(root, &top))
		checkNames(t, root, top.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")], data)
		return
	case len(s.AnyOf) > 0:
		checkNames(t, root, s.AnyOf[0], data)
		return
	}
	var list []json.RawMessage
	if s.Items != nil && json.Unmarshal(data, &list) == nil {
		for _, item := range list {
			checkNames(t, root, s.Items, item)
		}
	}
	var object map[string]json.RawMessage
	if (s.Properties != nil || s.Additional != nil) && assert.NoError(t, json.Unmarshal(data, &object), string(data)) {
		for _, name := range s.Required {
			assert.Contains(t, object, name)
		}
		for name, value := range object {
			member, known := s.Properties[name]
			if s.Additional != nil && !known {
				member, known = s.Additional, true
			}
			if assert.True(t, known, name) {
				checkNames(t, root, member, value)
			}
		}
	}
}

func TestDescribeRefuses(t *testing.T) {
	t.Parallel()
	type unencodable struct{ C chan int }
	broken := envelope.NewCatalog("Not a context")
	for name, test := range map[string]struct {
		side   side
		events *envelope.Catalog
		error  string
	}{
		"nil":            {error: "the catalog is nil"},
		"catalog":        {events: broken, error: `create catalog "Not a context"`},
		"routing":        {side: side{of[order]().register, routes(outbox.Route{})}, error: "external broker 1 has no name"},
		"unknown broker": {side: of[order](envelope.To("nowhere")), error: `addressed to broker "nowhere", which is no external broker`},
		"no contract": {
			side: side{func(events *envelope.Catalog) {
				envelope.Register[costly](events, envelope.To("partner"), envelope.Published(envelope.As(func(e costly) order { return order{e.ID} }, envelope.To("audit"))))
			}, routes(outbox.Route{Broker: "partner"}, outbox.Route{Broker: "audit"})},
			error: `addressed to broker "partner", for which it has no contract`,
		},
		"unencodable": {side: of[unencodable](), error: "Ordering.Placed.v1: jsonschema: contract_test.unencodable.C: encoding/json does not encode a chan int"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.side.register != nil {
				test.events = envelope.NewCatalog("ordering")
				test.side.register(test.events)
			}
			d := *shop().describe(t)
			before, err := json.Marshal(&d)
			require.NoError(t, err)
			require.ErrorContains(t, d.Describe(test.events, test.side.routing), test.error)
			after, err := json.Marshal(&d)
			require.NoError(t, err)
			assert.Equal(t, string(before), string(after))
		})
	}
}

func TestAsyncAPI(t *testing.T) {
	t.Parallel()
	d := shop().describe(t)
	all, err := d.AsyncAPI("1.2.0")
	require.NoError(t, err)
	testenv.Golden(t, golden, "testdata/shop.asyncapi.json", string(all))
	one, err := d.AsyncAPI("1.2.0", "audit")
	require.NoError(t, err)
	assert.NotContains(t, string(one), "partner")
	assert.NotContains(t, string(one), "$defs")
	_, err = d.AsyncAPI("1.2.0", "nowhere")
	require.EqualError(t, err, `contract: write AsyncAPI: there is no broker "nowhere": the document has ["audit" "partner"]`)
	empty, err := new(contract.Document).AsyncAPI("1.0.0")
	require.NoError(t, err)
	assert.Contains(t, string(empty), `"channels": {}`)
}

func TestUnmarshalRefuses(t *testing.T) {
	t.Parallel()
	const document = `{"fanout_contract":1,"context":"a","brokers":{"p":{"format":"native","content_type":"","headers":{},"envelope":%,"types":{}}}}`
	replaced := func(schema string) string { return strings.Replace(document, "%", schema, 1) }
	for text, reason := range map[string]string{
		`{}`:                                 "fanout_contract is 0",
		`{"fanout_contract":2,"brokers":{}}`: "this version of the library reads 1",
		`{"fanout_contract":1,"brokers":{},"more":1}`:                                                "unknown field",
		`{"fanout_contract":1,"brokers":{},"brokers":{}}`:                                            `member "brokers"`,
		`{"fanout_contract":1,"brokers":{"p":null}}`:                                                 `broker "p": a member is missing`,
		`{"fanout_contract":1,"brokers":{"p":{"format":"a"}}}`:                                       "a member is missing",
		replaced(`{"type":"text"}`):                                                                  `"text" is no type`,
		replaced(`{"$ref":"#/$defs/a"}`):                                                             `there is no "#/$defs/a"`,
		replaced(`{"$ref":"https://example.com"}`):                                                   "there is no",
		replaced(`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`): "reference to itself",
		replaced(`{"$ref":"#"}`):                                                                     `there is no "#"`,
		replaced(`{"anyOf":[{"type":"string"}]}`):                                                    "anyOf is not a reference or null",
		replaced(`{"anyOf":[null,null]}`):                                                            "anyOf is not a reference or null",
		replaced(`{"properties":{"a":null}}`):                                                        "a is null",
		replaced(`{"items":{"$defs":{"a":{}}}}`):                                                     "$defs stands within a schema",
		replaced(`{"enum":[{}]}`):                                                                    "a value that is no scalar",
		replaced(`{"oneOf":[]}`):                                                                     "unknown field",
		replaced(strings.Repeat(`{"items":`, 200) + "{}" + strings.Repeat("}", 200)):                 "100 in each other",
	} {
		err := json.Unmarshal([]byte(text), new(contract.Document))
		assert.ErrorContains(t, err, reason, text)
	}
	long := strings.Repeat("a", 1001)
	for text, reason := range map[string]string{
		replaced(`{"properties":{"` + long + `":{}}}`):                                                               "more than 1000 bytes",
		strings.Replace(replaced("{}"), `"p"`, `"`+long+`"`, 1):                                                      "the name of a broker, type, extension or header",
		strings.Replace(replaced("{}"), `"types"`, `"extensions":{"`+long+`":{}},"types"`, 1):                        "the name of a broker, type, extension or header",
		strings.Replace(replaced("{}"), `"types":{`, `"types":{"`+long+`":{"destination":"","key":"","data":{}}`, 1): "the name of a broker, type, extension or header",
	} {
		assert.ErrorContains(t, json.Unmarshal([]byte(text), new(contract.Document)), reason)
	}
	assert.ErrorContains(t, new(contract.Document).UnmarshalJSON(make([]byte, 9<<20)), "more than 8388608 bytes")
}
