package protobuf_test

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/protobuf"
	"github.com/gorm-fanout/fanout/protobuf/internal/shop" // stands for what protoc has generated for you
)

// Inside, an event is a Go type; partners get a Protobuf message that is made of it.
func ExampleAs() {
	events := envelope.NewCatalog("ordering")
	envelope.Register[Placed](events, envelope.Name("OrderPlaced"), envelope.Published(
		protobuf.As(func(e Placed) *shop.OrderPlaced {
			return &shop.OrderPlaced{OrderId: e.OrderID, Customer: e.Customer}
		}),
	))
	show(events, Placed{"42", "ada"})
	// Output:
	// default: application/json: {"OrderID":"42","Customer":"ada"}
	// partner: application/protobuf; proto=shop.v1.OrderPlaced: "\n\x0242\x12\x03ada"
	// lake: application/json: {"orderId":"42","customer":"ada"}
}

// The event itself is a message.
func ExampleRegister() {
	events := envelope.NewCatalog("ordering")
	protobuf.Register[*shop.OrderPlaced](events, envelope.Published())
	show(events, &shop.OrderPlaced{OrderId: "42", Status: shop.Status_STATUS_PLACED})
	// Output:
	// default: application/json: {"orderId":"42","status":"STATUS_PLACED"}
	// partner: application/protobuf; proto=shop.v1.OrderPlaced: "\n\x0242 \x01"
	// lake: application/json: {"orderId":"42","status":"STATUS_PLACED"}
}

// show prints what a commit writes for each broker: partner has the defaults, and lake encoding: json.
func show(events *envelope.Catalog, event any) {
	routing := outbox.Routing{External: []outbox.Route{{Broker: "partner"}, {Broker: "lake", JSON: true}}}.WithDefaults()
	message, err := events.Seal(envelope.NewEvent(event), envelope.Source{}, envelope.Context{})
	check(err)
	rows, err := routing.AppendRows(nil, message)
	check(err)
	for _, row := range rows {
		if row.ContentType == "application/json" {
			_, decoded, err := envelope.Decode(row.Payload)
			check(err)
			fmt.Printf("%s: %s: %s\n", row.TargetBroker, row.ContentType, decoded.Data)
			continue
		}
		fmt.Printf("%s: %s: %q\n", row.TargetBroker, row.ContentType, row.Payload)
	}
}

// A consumer takes the event in whichever form it comes.
func ExampleOn() {
	fanouttest.InExample(func(t fanouttest.TB) {
		db := fanouttest.Open(t, envelope.NewCatalog("billing")) // the consumer's own database
		_, err := inbox.Migrate(context.Background(), db)
		check(err)
		handlers := inbox.NewHandlers(db)
		protobuf.On(handlers, "Ordering.OrderPlaced.v1", func(_ *gorm.DB, event *shop.OrderPlaced, m *inbox.Message) error {
			fmt.Println(event.GetOrderId(), "of", event.GetCustomer(), "in order of", m.OrderingKey)
			return nil
		})
		check(handlers.Err())

		// What a consumer of a broker, such as redisconsumer, does with a message.
		m, err := inbox.Decode([]byte("\n\x0242\x12\x03ada"), map[string]string{
			"id": "0199c0de-0000-7000-8000-000000000001", "type": "Ordering.OrderPlaced.v1", "ordering_key": "ordering::order-42",
			"content-type": "application/protobuf; proto=shop.v1.OrderPlaced", "time": "2026-11-27T19:30:01.000000Z",
		})
		check(err)
		m.Consumer, m.Source = "billing", "ordering::order"
		outcome, err := handlers.Handle(context.Background(), m)
		fmt.Println(outcome, err)
	})
	// Output:
	// 42 of ada in order of ordering::order-42
	// handled <nil>
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
