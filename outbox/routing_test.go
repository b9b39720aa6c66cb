package outbox_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

type (
	placed  struct{ ID string }
	audited struct{ ID string }
)

func seal(t *testing.T, data any, options ...envelope.Option) *envelope.Message {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[placed](events, envelope.Published(), envelope.Name("Placed"))
	envelope.Register[audited](events, envelope.Name("Audited"))
	require.NoError(t, events.Err())
	message, err := events.Seal(envelope.NewEvent(data, options...), envelope.Source{Aggregate: "Order", ID: "1", Sequence: 1}, envelope.Context{})
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
	_, err = routing.AppendRows(nil, seal(t, placed{"1"}))
	var oversize *outbox.OversizeError
	require.ErrorAs(t, err, &oversize)
	assert.Equal(t, 100, oversize.Max)
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

func TestCheckTable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"outbox_messages", "app.outbox", "_x1"} {
		require.NoError(t, outbox.CheckTable(name))
	}
	for _, name := range []string{"", "a b", "a.b.c", "1a", `"x"`, "x;--", "a.", "tabel\n", string(make([]byte, 60))} {
		require.Error(t, outbox.CheckTable(name), "%q", name)
	}
}
