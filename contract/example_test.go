package contract_test

import (
	"fmt"

	"github.com/gorm-fanout/fanout/contract"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// Two releases of an application, of which the later one is not what partners rely on.
func ExampleDocument_Changes() {
	routing := outbox.Routing{External: []outbox.Route{{Broker: "partner"}}}

	type Before struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
	}
	events := envelope.NewCatalog("ordering")
	envelope.Register[Before](events, envelope.Published(), envelope.Name("OrderPlaced"))
	var before contract.Document
	if err := before.Describe(events, routing); err != nil {
		panic(err)
	}

	type After struct {
		ID    string `json:"id"`
		Total string `json:"total"`
		Note  string `json:"note,omitempty"`
	}
	events = envelope.NewCatalog("ordering")
	envelope.Register[After](events, envelope.Published(), envelope.Name("OrderPlaced"))
	var after contract.Document
	if err := after.Describe(events, routing); err != nil {
		panic(err)
	}

	breaking, compatible, err := before.Changes(&after)
	if err != nil {
		panic(err)
	}
	fmt.Println("breaking:", breaking)
	fmt.Println("compatible:", compatible)
	// Output:
	// breaking: [partner: Ordering.OrderPlaced.v1: data.total: type changed from integer to string]
	// compatible: [partner: Ordering.OrderPlaced.v1: data.note: added]
}
