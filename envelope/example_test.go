package envelope_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/envelope"
)

type InvoicePaid struct {
	Invoice string `json:"invoice"`
	Cents   int    `json:"cents"`
}

type InvoiceChecked struct{ By string }

// A catalog is filled once, at start-up, and checked there.
func ExampleCatalog() {
	events := envelope.NewCatalog("billing")
	envelope.Register[InvoicePaid](events,
		envelope.Published(), // partners may see it
		envelope.Key(func(e InvoicePaid) string { return "invoice-" + e.Invoice }),
	)
	envelope.Register[InvoiceChecked](events, envelope.Version(2), envelope.TTL(time.Hour))
	if err := events.Err(); err != nil {
		fmt.Println(err)
	}
	for _, t := range events.Types() {
		fmt.Println(t.WireType(), t.Published())
	}
	// Output:
	// Billing.InvoiceChecked.v2 false
	// Billing.InvoicePaid.v1 true
}

// Seal makes the message, the Marshal methods its forms.
func ExampleCatalog_Seal() {
	events := envelope.NewCatalog("billing")
	envelope.Register[InvoicePaid](events, envelope.Published())

	ctx := envelope.WithCorrelationID(context.Background(), "checkout-9")
	ctx = envelope.WithTenantID(ctx, "acme")

	event := envelope.NewEvent(InvoicePaid{Invoice: "2026-7", Cents: 1250})
	event.ID = uuid.MustParse("0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b") // so that this example has an output
	event.Time = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	source := envelope.Source{Aggregate: "Invoice", ID: "2026-7", Version: 3, Sequence: 1}
	m, err := events.Seal(event, source, envelope.FromContext(ctx))
	if err != nil {
		fmt.Println(err)
		return
	}
	external, err := m.MarshalExternal(envelope.Include{}, "tenant_id") // which a broker lists; without it no extension leaves
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Routing.Destination, m.Routing.OrderingKey)
	var indented bytes.Buffer
	if err := json.Indent(&indented, external, "", "  "); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(indented.String())
	// Output:
	// billing::invoice billing::invoice-2026-7
	// {
	//   "data": {
	//     "invoice": "2026-7",
	//     "cents": 1250
	//   },
	//   "metadata": {
	//     "headers": {
	//       "id": "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b",
	//       "time": "2026-03-01T12:00:00.000000Z",
	//       "type": "Billing.InvoicePaid.v1",
	//       "stream": "billing::invoice-2026-7"
	//     },
	//     "domain": {
	//       "kind": "EVENT",
	//       "stream_category": "billing::invoice",
	//       "version": 1,
	//       "sequence_id": "3.1",
	//       "correlation_id": "checkout-9"
	//     },
	//     "envelope": {
	//       "specversion": "1.0"
	//     },
	//     "extensions": {
	//       "tenant_id": "acme"
	//     }
	//   }
	// }
}

// What partners get is a type of its own: a field that is added to the event stays inside. The second version
// leaves beside the first one until each partner has moved.
func ExampleAs() {
	type (
		orderShipped  struct{ Order, Carrier, Street, City string }
		publicShipped struct {
			Order string `json:"order"`
		}
		publicShippedV2 struct {
			Order   string `json:"order"`
			Carrier string `json:"carrier"`
		}
	)
	events := envelope.NewCatalog("shipping")
	envelope.Register[orderShipped](events, envelope.Name("OrderShipped"), envelope.Published(
		envelope.As(func(e orderShipped) publicShipped { return publicShipped{e.Order} }),
		envelope.As(func(e orderShipped) publicShippedV2 { return publicShippedV2{e.Order, e.Carrier} }, envelope.Version(2)),
	))
	m, err := events.Seal(envelope.NewEvent(orderShipped{"42", "DHL", "Main Street 1", "Springfield"}), envelope.Source{}, envelope.Context{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, leaving := range m.AppendExternal(nil, "partner") {
		fmt.Println(leaving.Metadata.Headers.Type, string(leaving.Data))
	}
	// Output:
	// Shipping.OrderShipped.v1 {"order":"42"}
	// Shipping.OrderShipped.v2 {"order":"42","carrier":"DHL"}
}

// A consumer reads any form, and raises its own events under the message's cause.
func ExampleDecode() {
	payload := []byte(`{"specversion":"1.0","id":"0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b","source":"/billing/invoice",` +
		`"type":"Billing.InvoicePaid.v1","time":"2026-03-01T12:00:00.000000Z","data":{"invoice":"2026-7","cents":1250}}`)
	form, m, err := envelope.Decode(payload)
	if err != nil {
		fmt.Println(err)
		return
	}
	paid, err := envelope.DataAs[InvoicePaid](m.Data)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := envelope.WithCause(context.Background(), m)
	fmt.Println(form, m.Metadata.Headers.Type, paid.Cents)
	fmt.Println("caused by", envelope.FromContext(ctx).CausationID)
	// Output:
	// cloudevents Billing.InvoicePaid.v1 1250
	// caused by 0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b
}
