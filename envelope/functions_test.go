package envelope_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// Parcel says for itself where it goes, when it was packed, and what consumers filter on.
type Parcel struct {
	Country, Depot string
	Packed         time.Time
	Lines          []string
}

func parcels(t *testing.T, opts ...envelope.Option) *envelope.Catalog {
	t.Helper()
	c := envelope.NewCatalog("shipping")
	envelope.Register[Parcel](c, append(opts, envelope.Published())...)
	require.NoError(t, c.Err())
	return c
}

func country(p Parcel) string   { return p.Country }
func depot(p Parcel) string     { return p.Depot }
func packed(p Parcel) time.Time { return p.Packed }
func lines(p Parcel) string     { return strings.Join(p.Lines, ",") }

func TestFunctionsOfAnEvent(t *testing.T) {
	t.Parallel()
	c := parcels(t, envelope.Header("country", country), envelope.Header("lines", lines), envelope.Destination(depot), envelope.OccurredAt(packed), envelope.TTL(time.Hour))
	src := envelope.Source{Aggregate: "Parcel", ID: "7"}
	at := time.Date(2026, 3, 1, 13, 0, 0, 1500, time.FixedZone("", 3600))

	m := seal(t, c, fixedEvent(Parcel{Country: "SE", Depot: "depot.north", Packed: at}), src, envelope.Context{})
	assert.Equal(t, map[string]string{"country": "SE"}, m.Routing.Headers, "what is empty is left out")
	assert.Equal(t, "depot.north", m.Routing.Destination)
	assert.Equal(t, "shipping::parcel", m.Metadata.Domain.StreamCategory)
	assert.Equal(t, "shipping::parcel-7", m.Routing.OrderingKey)
	assert.Equal(t, time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC), m.Metadata.Headers.Time)
	assert.Equal(t, m.Metadata.Headers.Time.Add(time.Hour), m.Metadata.Headers.Deadline)

	m = seal(t, c, fixedEvent(Parcel{}), src, envelope.Context{})
	assert.Nil(t, m.Routing.Headers)
	assert.Equal(t, "shipping::parcel", m.Routing.Destination)
	assert.Equal(t, fixedTime, m.Metadata.Headers.Time)

	// An event's own win over its type's; they are asked when it is raised.
	data := Parcel{Country: "SE", Depot: "north", Lines: []string{"a"}}
	event := envelope.NewEvent(data, envelope.Header("country", func(Parcel) string { return "" }), envelope.Header("depot", depot), envelope.Destination(lines))
	data.Lines[0] = "b"
	m = seal(t, c, event, src, envelope.Context{})
	assert.Equal(t, map[string]string{"lines": "a", "depot": "north"}, m.Routing.Headers)
	assert.Equal(t, "a", m.Routing.Destination)
}

func TestFunctionsThatFail(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]*envelope.Catalog{
		"the function of option Header: panic: runtime error: index out of range": parcels(t, envelope.Header("x", func(p Parcel) string { return p.Lines[0] })),
		"the function of option Destination: panic: why":                          parcels(t, envelope.Destination(func(Parcel) string { panic("why") })),
		"the function of option OccurredAt: panic: why":                           parcels(t, envelope.OccurredAt(func(Parcel) time.Time { panic("why") })),
		`the header "x" is too long: names have at most 256 bytes, values 1024`:   parcels(t, envelope.Header("x", func(Parcel) string { return strings.Repeat("x", 1025) })),
		`the header "x" has a control character`:                                  parcels(t, envelope.Header("x", func(Parcel) string { return "a\nb: c" })),
		"its destination \"xxx":                                                   parcels(t, envelope.Destination(func(Parcel) string { return strings.Repeat("x", 513) })),
		"its destination \"a\\x00\" contains a control character":                 parcels(t, envelope.Destination(func(Parcel) string { return "a\x00" })),
		"OccurredAt leads to the year 10000":                                      parcels(t, envelope.OccurredAt(func(Parcel) time.Time { return time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) })),
	} {
		_, err := c.Seal(envelope.NewEvent(Parcel{}), envelope.Source{}, envelope.Context{})
		var encode *envelope.EncodeError
		require.ErrorAs(t, err, &encode)
		require.ErrorContains(t, err, want)
	}
}

func TestFunctionsOfTheWrongKind(t *testing.T) {
	t.Parallel()
	refused := func(want string, opts ...envelope.Option) {
		t.Helper()
		c := envelope.NewCatalog("shipping")
		envelope.Register[Parcel](c, opts...)
		require.ErrorContains(t, c.Err(), want)
	}
	for _, name := range []string{"id", "type", "ordering_key", "correlation_id", "content-type", "traceparent", "tracestate", "data"} {
		refused(fmt.Sprintf("%q is a field that each message has by itself", name), envelope.Header(name, country))
	}
	refused("has an empty name", envelope.Header("", country))
	refused("goog-x", envelope.Header("goog-x", country))
	refused("is too long", envelope.Header(strings.Repeat("x", 257), country))
	refused("its function takes envelope_test.OrderPlaced", envelope.Header("x", func(OrderPlaced) string { return "" }))
	refused("the function is nil", envelope.Header[Parcel]("x", nil))
	refused("the function is nil", envelope.Destination[Parcel](nil))
	refused("the function is nil", envelope.OccurredAt[Parcel](nil))
	refused(`Header("x") is given as well`, envelope.Header("x", country), envelope.Header("x", depot))
	var many []envelope.Option
	for i := range 21 {
		many = append(many, envelope.Header(fmt.Sprint("h", i), country))
	}
	refused("there are 21 of them, and the most is 20", many...)
	c := parcels(t, many[:20:20]...)
	_, err := c.Seal(envelope.NewEvent(Parcel{}, many[20]), envelope.Source{}, envelope.Context{})
	require.ErrorContains(t, err, "there are 21 of them, and the most is 20")
	refused("its function takes envelope_test.Parcel", envelope.Published(envelope.As(country, envelope.Header("x", country))))
}
