package contract_test

import (
	"encoding/json"
	"math/big"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

var (
	eu    = outbox.Route{Broker: "partner", Overrides: outbox.Overrides{Attributes: map[string]string{"region": "eu"}}}
	named = outbox.Route{Broker: "partner", Include: envelope.Include{FQN: true}}
)

// twoAsOne registers two events that are one to partners. The options are those of the first.
func twoAsOne(options ...envelope.Option) side {
	return side{func(events *envelope.Catalog) {
		one := envelope.As(func(c costly) order { return order{c.ID} }, envelope.Name("Shown"))
		also := envelope.As(func(c wideCostly) order { return order{c.ID} }, envelope.Name("Shown"))
		envelope.Register[costly](events, append(options, envelope.Name("A"), envelope.Published(one))...)
		envelope.Register[wideCostly](events, envelope.Name("B"), envelope.Published(also))
	}, routes(outbox.Route{Broker: "partner"})}
}

// mutations are changes of an application, and how partners see each of them: as the lines that
// the document reports.
var mutations = []struct {
	name                 string
	before, after        side
	breaking, compatible []string
}{
	// Fields.
	{"nothing changes", of[order](), of[order](), nil, nil},
	{
		"field removed", of[struct {
			A string `json:"a"`
			B string `json:"b"`
		}](), of[one[string]](), lines(".b: removed"), nil,
	},
	{"optional field removed", of[maybe[string]](), of[struct{}](), lines(".a: removed"), nil},
	{"optional field added", of[struct{}](), of[maybe[string]](), nil, lines(".a: added")},
	{"required field added", of[struct{}](), of[one[string]](), nil, lines(".a: added")},
	{
		"field renamed in JSON", of[one[string]](), of[struct {
			A string `json:"b"`
		}](), lines(".a: removed"), lines(".b: added"),
	},
	{
		"field without a JSON name renamed in Go", of[struct{ Total int }](), of[struct{ Amount int }](), lines(".Total: removed"), lines(".Amount: added"),
	},
	{
		"field renamed in Go alone", of[one[string]](), of[struct {
			B string `json:"a"`
		}](), nil, nil,
	},
	{
		"fields in another order", of[struct {
			A string `json:"a"`
			B string `json:"b"`
		}](), of[struct {
			B string `json:"b"`
			A string `json:"a"`
		}](), nil, nil,
	},
	{
		"field hidden", of[one[string]](), of[struct {
			A string `json:"-"`
		}](), lines(".a: removed"), nil,
	},
	{
		"fields moved into an embedded struct", of[struct {
			ID string `json:"id"`
		}](), of[struct{ base }](), nil, nil,
	},
	{
		"fields moved into an embedded pointer", of[struct {
			ID string `json:"id"`
		}](), of[struct{ *base }](), lines(".id: may be absent now"), nil,
	},
	{
		"fields moved into a named struct", of[struct {
			ID string `json:"id"`
		}](), of[struct {
			Base base `json:"base"`
		}](), lines(".id: removed"), lines(".base: added"),
	},

	// Presence and null.
	{"required removed", of[one[string]](), of[maybe[string]](), lines(".a: may be absent now"), nil},
	{"required added", of[maybe[string]](), of[one[string]](), nil, lines(".a: is always present now, though not in messages of before")},
	{
		"omitzero added", of[one[time.Time]](), of[struct {
			A time.Time `json:"a,omitzero"`
		}](), lines(".a: may be absent now"), nil,
	},
	{
		"omitempty where nothing is empty", of[one[base]](), of[struct {
			A base `json:"a,omitempty"` //nolint:modernize // that it has no effect is what is tested
		}](), nil, nil,
	},
	{"value becomes a pointer", of[one[string]](), of[one[*string]](), lines(".a: may be null now"), nil},
	{"pointer becomes a value", of[one[*int]](), of[one[int]](), nil, lines(".a: is never null now")},
	{"struct becomes a pointer", of[one[base]](), of[one[*base]](), lines(".a: may be null now"), nil},
	{"null becomes absence", of[one[*string]](), of[maybe[*string]](), lines(".a: may be absent now"), lines(".a: is never null now")},
	{
		"array becomes a slice", of[one[[2]int]](), of[one[[]int]](), lines(".a: may be null now", ".a: least number of elements 2 removed", ".a: greatest number of elements 2 removed"), nil,
	},

	// Types.
	{"type changed", of[one[int]](), of[one[string]](), lines(".a: type changed from integer to string"), nil},
	{"number in a string", of[one[int]](), of[quoted[int]](), lines(".a: type changed from integer to string"), nil},
	{"integer becomes a number", of[one[int]](), of[one[float64]](), lines(".a: type widened from integer to number"), nil},
	{
		"number becomes an integer", of[one[float64]](), of[one[int64]](), nil, lines(".a: type narrowed from number to integer", ".a: range narrowed from double to int64"),
	},
	{"integer widened", of[one[int32]](), of[one[int64]](), lines(".a: range widened from int32 to int64"), nil},
	{"integer narrowed", of[one[int32]](), of[one[uint8]](), nil, lines(".a: range narrowed from int32 to uint8")},
	{"unsigned becomes signed", of[one[uint32]](), of[one[int32]](), lines(".a: range widened from uint32 to int32"), nil},
	{"integer without a bound", of[one[*int64]](), of[one[*big.Int]](), lines(".a: format int64 removed"), nil},
	{"anything becomes a string", of[one[any]](), of[one[string]](), nil, lines(".a: type narrowed from any to string")},
	{"string becomes anything", of[one[string]](), of[one[json.RawMessage]](), lines(".a: type widened from string to any"), nil},
	{"text becomes a time", of[one[string]](), of[one[time.Time]](), nil, lines(".a: format date-time added")},
	{"time becomes a UUID", of[one[time.Time]](), of[one[uuid.UUID]](), lines(".a: format changed from date-time to uuid"), nil},
	{"UUID becomes text", of[one[uuid.UUID]](), of[one[string]](), lines(".a: format uuid removed"), nil},
	{"text becomes bytes", of[one[*string]](), of[one[[]byte]](), lines(".a: encoding changed from none to base64"), nil},
	{"struct becomes a map", of[one[*base]](), of[one[map[string]string]](), lines(".a.id: removed", ".a.*: fields became a map"), nil},
	{"map becomes a struct", of[one[map[string]string]](), of[one[*base]](), lines(".a.*: a map became fields"), lines(".a.id: added")},
	{"one becomes many", of[one[base]](), of[one[[]base]](), lines(".a: may be null now", ".a: type changed from object to array"), nil},
	{"type of elements changed", of[one[[]int]](), of[one[[]string]](), lines(".a[]: type changed from integer to string"), nil},
	{"type of a map's values changed", of[one[map[string]int]](), of[one[map[string]bool]](), lines(".a.*: type changed from integer to boolean"), nil},
	{"type of a map's keys narrowed", of[one[map[string]int]](), of[one[map[int]int]](), nil, lines(".a.(names): limited now")},
	{"field of a recursive type removed", of[tree](), of[namelessTree](), lines(".name: removed"), nil},

	// Enums.
	{"enum widened", of[one[status]](), of[one[wideStatus]](), lines(`.a: enum widened: "refunded" comes too, which readers do not know`), nil},
	{"enum narrowed", of[one[wideStatus]](), of[one[status]](), lines(`.a: enum narrowed: "refunded" no longer comes`), nil},
	{
		"enum changed", of[one[*status]](), of[one[*otherStatus]](), lines(`.a: enum narrowed: "placed" no longer comes`, `.a: enum widened: "refunded" comes too, which readers do not know`), nil,
	},
	{"enum added", of[one[plainStatus]](), of[one[status]](), nil, lines(`.a: limited to "paid", "placed"`)},
	{
		"enum removed", of[struct {
			A string `json:"a" jsonschema:"enum=placed,enum=paid"`
		}](), of[one[string]](), lines(`.a: no longer limited to "paid", "placed"`), nil,
	},
	{
		"enum of a tag becomes that of a type", of[struct {
			A []string `json:"a" jsonschema:"enum=placed,enum=paid"`
		}](), of[one[[]status]](), nil, nil,
	},

	// Types of events.
	{
		"event type removed", of[order]().and(func(events *envelope.Catalog) { envelope.Register[base](events, envelope.Published()) }), of[order](),
		[]string{"partner: Ordering.base.v1: removed"},
		nil,
	},
	{
		"event type added", of[order](), of[order]().and(func(events *envelope.Catalog) { envelope.Register[base](events, envelope.Published()) }),
		nil,
		[]string{"partner: Ordering.base.v1: added"},
	},
	{"event type added that stays inside", of[order](), of[order]().and(func(events *envelope.Catalog) { envelope.Register[base](events) }), nil, nil},
	{
		"version changed", of[order](), of[order](envelope.Version(2)),
		[]string{"partner: Ordering.Placed.v1: removed"},
		[]string{"partner: Ordering.Placed.v2: added"},
	},
	{
		"type filtered out", of[order](), to[order](outbox.Route{Broker: "partner", Types: []string{"Billing.*"}}),
		[]string{"partner: Ordering.Placed.v1: removed"},
		nil,
	},
	{
		"type addressed to another broker",
		side{of[order]().register, routes(outbox.Route{Broker: "partner"}, outbox.Route{Broker: "audit"})},
		side{of[order](envelope.To("audit")).register, routes(outbox.Route{Broker: "partner"}, outbox.Route{Broker: "audit"})},
		[]string{"partner: Ordering.Placed.v1: removed"},
		nil,
	},
	{
		"own key", of[order](), of[order](envelope.Key(func(o order) string { return o.ID })),
		[]string{"partner: Ordering.Placed.v1: ordering key changed from aggregate to event"},
		nil,
	},
	{
		"order lost", of[order](), of[order](envelope.Unordered()),
		[]string{"partner: Ordering.Placed.v1: ordering key changed from aggregate to none"},
		nil,
	},
	{
		"order gained", of[order](envelope.Unordered()), of[order](),
		nil,
		[]string{"partner: Ordering.Placed.v1: ordering key changed from none to aggregate"},
	},

	// Brokers.
	{
		"broker removed",
		side{of[order]().register, routes(outbox.Route{Broker: "partner"}, outbox.Route{Broker: "audit"})},
		of[order](),
		[]string{"audit: removed"},
		nil,
	},
	{
		"broker added", of[order](),
		side{of[order]().register, routes(outbox.Route{Broker: "partner"}, outbox.Route{Broker: "audit"})},
		nil,
		[]string{"audit: added"},
	},
	{
		"format changed", of[order](), to[order](outbox.Route{Broker: "partner", Format: envelope.FormatCloudEvents}),
		[]string{"partner: format changed from native to cloudevents"},
		[]string{"partner: headers.content-type: added"},
	},
	{
		"destination changed", of[order](), to[order](outbox.Route{Broker: "partner", Overrides: outbox.Overrides{Destination: "acme.{aggregate}"}}),
		[]string{`partner: Ordering.Placed.v1: destination changed from "{stream}" to "acme.{aggregate}"`},
		nil,
	},
	{
		"content type changed", of[order](), to[order](outbox.Route{Broker: "partner", Overrides: outbox.Overrides{ContentType: "application/vnd.acme+json"}}),
		[]string{`partner: content type changed from "application/json" to "application/vnd.acme+json"`},
		[]string{"partner: headers.content-type: added"},
	},
	{
		"extension removed", to[order](outbox.Route{Broker: "partner", Extensions: []string{"tenant_id", "actor"}}),
		to[order](outbox.Route{Broker: "partner", Extensions: []string{"actor"}}),
		[]string{"partner: extension tenant_id: removed"},
		nil,
	},
	{
		"extension added", of[order](), to[order](outbox.Route{Broker: "partner", Extensions: []string{"region"}}),
		nil,
		[]string{"partner: extension region: added"},
	},
	{
		"extension of CloudEvents removed", to[order](outbox.Route{Broker: "partner", Format: envelope.FormatCloudEvents, Extensions: []string{"tenant_id"}}),
		to[order](outbox.Route{Broker: "partner", Format: envelope.FormatCloudEvents}),
		[]string{"partner: extension tenantid: removed"},
		nil,
	},
	{
		"header removed", to[order](outbox.Route{Broker: "partner", Overrides: outbox.Overrides{Attributes: map[string]string{"site": "eu"}}}), of[order](),
		[]string{"partner: headers.site: removed"},
		nil,
	},
	{
		"header changed", to[order](outbox.Route{Broker: "partner", Overrides: outbox.Overrides{Attributes: map[string]string{"site": "eu"}}}),
		to[order](outbox.Route{Broker: "partner", Overrides: outbox.Overrides{Attributes: map[string]string{"site": "us"}}}),
		[]string{`partner: headers.site: constant changed from "eu" to "us"`},
		nil,
	},
	{
		"header added", of[order](), to[order](outbox.Route{Broker: "partner", Overrides: outbox.Overrides{Attributes: map[string]string{"site": "eu"}}}),
		nil,
		[]string{"partner: headers.site: added"},
	},
	{
		"source of CloudEvents fixed", to[order](outbox.Route{Broker: "partner", Format: envelope.FormatCloudEvents}),
		to[order](outbox.Route{Broker: "partner", Format: envelope.FormatCloudEvents, Source: "https://shop.example.com"}),
		[]string{`partner: envelope.source: pattern ^/ordering(/|$) removed`},
		[]string{`partner: envelope.source: constant "https://shop.example.com" added`},
	},
	{
		"header in place of the broker's", to[order](eu), to[order](eu, envelope.Header("region", func(o order) string { return o.ID })),
		[]string{"partner: Ordering.Placed.v1: header region: added in place of the broker's"},
		nil,
	},
	{"range of an integer in a string widened", of[quoted[int32]](), of[quoted[int64]](), lines(".a: range widened from int32 to int64"), nil},
	{"text no longer quoted twice", of[quoted[string]](), of[one[string]](), lines(`.a: pattern ^" removed`), nil},
	{
		"number in a string becomes a text", of[quoted[float64]](), of[one[string]](), lines(".a: format double removed", `.a: pattern ^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$ removed`), nil,
	},
	{
		"name of the Go type, which a broker gets, changed", to[order](named), to[other](named),
		[]string{
			`partner: Ordering.Placed.v1: fqn changed from "github.com/gorm-fanout/fanout/contract_test.order" to "github.com/gorm-fanout/fanout/contract_test.other"`,
			"partner: Ordering.Placed.v1: data.id: removed",
		},
		lines(".number: added"),
	},
	{
		"order of one of two events that are one to partners", twoAsOne(), twoAsOne(envelope.Unordered()),
		[]string{"partner: Ordering.Shown.v1: ordering key changed from aggregate to none"},
		nil,
	},
	{
		"destination of one of two events that are one to partners", twoAsOne(), twoAsOne(envelope.Destination(func(costly) string { return "x" })),
		[]string{`partner: Ordering.Shown.v1: destination changed from "{stream}" to "{destination} or {stream}"`},
		nil,
	},
	{
		"header of one of two events that are one to partners", twoAsOne(envelope.Header("region", func(costly) string { return "x" })), twoAsOne(),
		[]string{"partner: Ordering.Shown.v1: header region: removed"},
		nil,
	},
	// Contracts and functions of an event.
	{"contract in place of the event", of[costly](), publishedAs[costly](shown), lines(".margin: removed"), nil},
	{
		"the event gets a field that its contract has not", publishedAs[costly](shown), publishedAs[wideCostly](envelope.As(func(wideCostly) order { return order{} })),
		nil, nil,
	},
	{
		"second version beside the first", publishedAs[costly](shown), publishedAs[costly](shown, envelope.As(func(costly) other { return other{} }, envelope.Version(2))),
		nil,
		[]string{"partner: Ordering.Placed.v2: added"},
	},
	{
		"first version ended", publishedAs[costly](shown, envelope.As(func(costly) other { return other{} }, envelope.Version(2))),
		publishedAs[costly](envelope.As(func(costly) other { return other{} }, envelope.Version(2))),
		[]string{"partner: Ordering.Placed.v1: removed"},
		nil,
	},
	{
		"contract for another broker", publishedAs[costly](shown).to("audit"), publishedAs[costly](envelope.As(func(costly) order { return order{} }, envelope.To("audit"))).to("audit"),
		[]string{"partner: Ordering.Placed.v1: removed"},
		nil,
	},
	{
		"header of the event removed", of[order](envelope.Header("region", func(order) string { return "" })), of[order](),
		[]string{"partner: Ordering.Placed.v1: header region: removed"},
		nil,
	},
	{
		"header of the event added", of[order](), of[order](envelope.Header("region", func(order) string { return "" })),
		nil,
		[]string{"partner: Ordering.Placed.v1: header region: added"},
	},
	{
		"destination by a function", of[order](), of[order](envelope.Destination(func(order) string { return "" })),
		[]string{`partner: Ordering.Placed.v1: destination changed from "{stream}" to "{destination}"`},
		nil,
	},
	{
		"name of the Go type included", of[order](), to[order](outbox.Route{Broker: "partner", Include: envelope.Include{FQN: true}}),
		nil,
		[]string{"partner: envelope.metadata.domain.fqn: added"},
	},
	{
		"origin no longer included", to[order](outbox.Route{Broker: "partner", Include: envelope.Include{OriginStream: true}}), of[order](),
		[]string{"partner: envelope.metadata.domain.origin_stream: removed"},
		nil,
	},
	{
		"what a partner does not see", of[order](), to[order](outbox.Route{Broker: "partner", Overrides: outbox.Overrides{TTL: time.Hour}}, envelope.TTL(time.Hour)),
		nil, nil,
	},
}

func TestChanges(t *testing.T) {
	t.Parallel()
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			breaking, compatible, err := m.before.describe(t).Changes(m.after.describe(t))
			require.NoError(t, err)
			assert.Equal(t, m.breaking, breaking)
			assert.Equal(t, m.compatible, compatible)
		})
	}
}
