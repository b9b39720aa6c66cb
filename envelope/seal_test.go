package envelope_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

func TestSealStreams(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	for name, test := range map[string]struct {
		source                  envelope.Source
		stream, category, key   string
		aggregate, id, sequence string
	}{
		"aggregate":    {order42, "ordering::order-42", "ordering::order", "ordering::order-42", "Order", "42", "7.1"},
		"no aggregate": {envelope.Source{Sequence: 3}, "ordering", "ordering", "", "", "", ""},
		"composite key": {
			envelope.Source{Aggregate: "OrderLine", ID: "42,7"},
			"ordering::order_line-42,7", "ordering::order_line", "ordering::order_line-42,7", "OrderLine", "42,7", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := seal(t, c, placed(), test.source, envelope.Context{})
			require.Equal(t, test.stream, m.Metadata.Headers.Stream)
			require.Equal(t, test.category, m.Metadata.Domain.StreamCategory)
			require.Equal(t, test.category, m.Routing.Destination)
			require.Equal(t, test.key, m.Routing.OrderingKey)
			require.Equal(t, test.aggregate, m.Routing.AggregateType)
			require.Equal(t, test.id, m.Routing.AggregateID)
			require.Equal(t, test.sequence, m.Metadata.Domain.SequenceID)
		})
	}
}

func TestOrderingKey(t *testing.T) {
	t.Parallel()
	byCustomer := envelope.Key(func(e OrderPlaced) string { return "customer-" + e.Customer })
	byOrder := envelope.Key(func(e OrderPlaced) string { return "order-" + e.OrderID })
	noKey := envelope.Key(func(OrderPlaced) string { return "" })
	for name, test := range map[string]struct {
		atRegister, atRaise []envelope.Option
		source              envelope.Source
		want                string
	}{
		"stream":                       {nil, nil, order42, "ordering::order-42"},
		"type":                         {[]envelope.Option{byCustomer}, nil, order42, "customer-ada"},
		"type, no aggregate":           {[]envelope.Option{byCustomer}, nil, envelope.Source{}, "customer-ada"},
		"event over type":              {[]envelope.Option{byCustomer}, []envelope.Option{byOrder}, order42, "order-9"},
		"unordered":                    {[]envelope.Option{envelope.Unordered()}, nil, order42, ""},
		"unordered event of keyed":     {[]envelope.Option{byCustomer}, []envelope.Option{envelope.Unordered()}, order42, ""},
		"keyed event of unordered":     {[]envelope.Option{envelope.Unordered()}, []envelope.Option{byOrder}, order42, "order-9"},
		"empty key is no key":          {nil, []envelope.Option{noKey}, order42, ""},
		"no aggregate means unordered": {nil, nil, envelope.Source{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := envelope.NewCatalog("ordering")
			envelope.Register[OrderPlaced](c, test.atRegister...)
			m := seal(t, c, fixedEvent(OrderPlaced{OrderID: "9", Customer: "ada"}, test.atRaise...), test.source, envelope.Context{})
			require.Equal(t, test.want, m.Routing.OrderingKey)
		})
	}
}

func TestPriorityPrecedence(t *testing.T) {
	t.Parallel()
	const high = envelope.PriorityHigh
	shared := envelope.Priority(envelope.PriorityBulk) // one value in both places
	for name, test := range map[string]struct {
		atRegister, atRaise []envelope.Option
		context             *envelope.PriorityLevel
		want                envelope.PriorityLevel
	}{
		"nothing":             {nil, nil, nil, envelope.PriorityNormal},
		"type":                {[]envelope.Option{envelope.Priority(-10)}, nil, nil, -10},
		"context over type":   {[]envelope.Option{envelope.Priority(-10)}, nil, ptr(high), 50},
		"event over context":  {[]envelope.Option{envelope.Priority(-10)}, []envelope.Option{envelope.Priority(7)}, ptr(high), 7},
		"normal is a choice":  {[]envelope.Option{envelope.Priority(-10)}, nil, ptr(envelope.PriorityNormal), 0},
		"same option, raised": {[]envelope.Option{shared}, []envelope.Option{shared}, ptr(high), -100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := envelope.NewCatalog("ordering")
			envelope.Register[OrderPlaced](c, test.atRegister...)
			m := seal(t, c, placed(test.atRaise...), order42, envelope.Context{Priority: test.context})
			require.Equal(t, int(test.want), m.Routing.Priority)
			require.Equal(t, int(test.want), m.Metadata.Domain.Priority)
		})
	}
}

func TestBrokers(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b"}
	c := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](c, envelope.Published(), envelope.To(names...))
	names[0] = "changed later"

	m := seal(t, c, placed(), order42, envelope.Context{})
	require.True(t, m.Routing.Published)
	require.Equal(t, []string{"a", "b"}, m.Routing.To)
	m.Routing.To[0] = "changed by a reader"
	require.Equal(t, []string{"a", "b"}, seal(t, c, placed(), order42, envelope.Context{}).Routing.To)

	m = seal(t, c, placed(envelope.To("c")), order42, envelope.Context{})
	require.Equal(t, []string{"c"}, m.Routing.To)

	m = seal(t, newCatalog(t), placed(), order42, envelope.Context{})
	require.Nil(t, m.Routing.To, "all of them")
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	at := func(when time.Time) envelope.Option {
		return envelope.NotBefore(func(OrderPlaced) time.Time { return when })
	}
	later, earlier := fixedTime.Add(time.Hour), fixedTime.Add(-time.Hour)
	cet := time.FixedZone("CET", 3600)
	for name, test := range map[string]struct {
		options             []envelope.Option
		notBefore, deadline time.Time
	}{
		"neither":                  {nil, time.Time{}, time.Time{}},
		"ttl from the event":       {[]envelope.Option{envelope.TTL(time.Minute)}, time.Time{}, fixedTime.Add(time.Minute)},
		"ttl from not before":      {[]envelope.Option{envelope.TTL(time.Minute), at(later)}, later, later.Add(time.Minute)},
		"not before in the past":   {[]envelope.Option{envelope.TTL(time.Minute), at(earlier)}, earlier, fixedTime.Add(time.Minute)},
		"zero is at once":          {[]envelope.Option{at(time.Time{})}, time.Time{}, time.Time{}},
		"another zone":             {[]envelope.Option{at(later.In(cet))}, later, time.Time{}},
		"never before: rounded up": {[]envelope.Option{at(later.Add(1))}, later.Add(time.Microsecond), time.Time{}},
		"deadline rounded down":    {[]envelope.Option{envelope.TTL(time.Microsecond + 999)}, time.Time{}, fixedTime.Add(time.Microsecond)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := seal(t, newCatalog(t), placed(test.options...), order42, envelope.Context{})
			require.Equal(t, test.notBefore, m.Routing.NotBefore)
			require.Equal(t, test.deadline, m.Routing.ExpiresAt)
			require.Equal(t, test.deadline, m.Metadata.Headers.Deadline)
			require.Equal(t, !test.notBefore.IsZero(), m.Metadata.Domain.SequenceID == "", "a consumer would drop a scheduled event by it")
		})
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	type point struct{ X, Y int }
	c := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](c, envelope.Extension("a", "type"), envelope.Extension("b", "type"), envelope.Extension("c", "type"))
	cx := envelope.Context{TenantID: "acme", Actor: "ada", Extensions: map[string]any{
		"b": "context", "c": "context", "actor": "overruled by the field",
		"int": int64(math53), "float": 1.50, "nothing": nil, "yes": true, "struct": point{1, 2}, "list": []any{1, "<"}, "broken": "a\xffb",
	}}
	m := seal(t, c, placed(envelope.Extension("c", "event")), order42, cx)
	require.Equal(t, envelope.Extensions{
		"a": "type", "b": "context", "c": "event", "tenant_id": "acme", "actor": "ada",
		"int": json.Number("9007199254740993"), "float": json.Number("1.5"), "nothing": nil, "yes": true,
		"struct": map[string]any{"X": json.Number("1"), "Y": json.Number("2")},
		"list":   []any{json.Number("1"), "<"}, "broken": "a\ufffdb",
	}, m.Metadata.Extensions)
	require.Equal(t, "acme", m.Routing.TenantID)

	// What a consumer decodes is what was sealed, large integers included.
	raw, err := m.MarshalInternal()
	require.NoError(t, err)
	back, err := envelope.DecodeInternal(raw)
	require.NoError(t, err)
	require.Equal(t, m.Metadata, back.Metadata)

	// Whoever sets the tenant, column and extension agree.
	m = seal(t, c, placed(envelope.Extension("tenant_id", "globex")), order42, cx)
	require.Equal(t, "globex", m.Routing.TenantID)
	require.Equal(t, "globex", m.Metadata.Extensions["tenant_id"])

	m = seal(t, newCatalog(t), placed(), order42, envelope.Context{})
	require.Nil(t, m.Metadata.Extensions)
}

const math53 = 1<<53 + 1 // no double has this value

// Nothing leaves unless its type says so.
func TestNotPublished(t *testing.T) {
	t.Parallel()
	m := seal(t, newCatalog(t), fixedEvent(OrderAudited{}), order42, envelope.Context{})
	const want = "envelope: encode Ordering.OrderAudited.v1 for an external broker: the event type is not marked as published: " +
		"add envelope.Published() to its registration, or route it to the internal broker only"
	_, err := m.MarshalExternal(envelope.Include{}, every(m)...)
	require.EqualError(t, err, want)
	_, err = m.MarshalCloudEvent(envelope.CloudEventOptions{Extensions: every(m)})
	require.EqualError(t, err, want)
	_, err = m.MarshalInternal()
	require.NoError(t, err)
}
