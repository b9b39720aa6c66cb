package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// change is what this consumer needs of a change event of Debezium, as its JSON converter writes it
// without schemas.
type change struct {
	Op     string          `json:"op"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	// Source is where it stands in the log of the database.
	Source struct {
		DB     string `json:"db"`
		Schema string `json:"schema"`
		Table  string `json:"table"`
		LSN    int64  `json:"lsn"`
	} `json:"source"`
}

// debezium makes an event of each change of a row: "orders.c" where one was inserted. Ordering keys
// are those of the topic's records, the primary keys of rows. All rows of a snapshot have one place in
// the log, and so have those of one COPY: the id is made of place, row and operation.
func debezium(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
	if len(raw.Payload) == 0 { // the tombstone behind a deletion, for the compaction of the topic
		return nil, inbox.ErrSkip
	}
	var c change
	if err := json.Unmarshal(raw.Payload, &c); err != nil || c.Source.Table == "" {
		return nil, nil //nolint:nilerr,nilnil // it is not from Debezium
	}
	row := c.After
	if c.Op == "d" {
		row = c.Before // its primary key alone, unless the table has REPLICA IDENTITY FULL
	}
	return &envelope.CloudEvent{
		ID:     fmt.Sprintf("%d/%s.%s/%s/%s", c.Source.LSN, c.Source.Schema, c.Source.Table, c.Op, raw.OrderingKey),
		Source: "/" + c.Source.DB, Type: c.Source.Table + "." + c.Op, Data: row,
	}, nil
}

// Change events of Debezium, here those of a snapshot, are handled as events, beside those of Fanout in the same topic.
func ExampleDecoder() {
	db, remove := openExample()
	defer remove()
	handlers := inbox.NewHandlers(db)
	inbox.On(handlers, "orders.r", func(tx *gorm.DB, row struct{ ID, Amount int }, _ *inbox.Message) error {
		fmt.Println("order", row.ID, "of", row.Amount)
		return tx.Model(&Revenue{}).Where("id = 1").Update("total", gorm.Expr("total + ?", row.Amount)).Error
	})
	handlers.Ignore("orders.c", "orders.u", "orders.d")

	// A consumer does the following with what arrives; here it is done by hand:
	//
	//	kafkaconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Decoder: debezium}}
	for _, change := range []struct{ key, payload string }{
		{"7", `{"op":"r","before":null,"after":{"id":7,"amount":40},"source":{"db":"shop","schema":"public","table":"orders","lsn":24023128}}`},
		{"8", `{"op":"r","before":null,"after":{"id":8,"amount":2},"source":{"db":"shop","schema":"public","table":"orders","lsn":24023128}}`},
		{"8", `{"op":"r","before":null,"after":{"id":8,"amount":2},"source":{"db":"shop","schema":"public","table":"orders","lsn":24023128}}`},
		{"7", `{"op":"u","before":null,"after":{"id":7,"amount":50},"source":{"db":"shop","schema":"public","table":"orders","lsn":24023200}}`},
		{"7", `{"op":"d","before":{"id":7},"after":null,"source":{"db":"shop","schema":"public","table":"orders","lsn":24023300}}`},
		{"7", ``},
	} {
		m, err := inbox.Decoder(debezium).Decode(&inbox.RawMessage{Payload: []byte(change.payload), OrderingKey: change.key, Source: "shop.orders"})
		if err != nil {
			fmt.Println(err)
			continue
		}
		m.Consumer, m.Source = "accounting", "shop.orders"
		fmt.Println(handlers.Handle(context.Background(), m))
	}
	// Output:
	// order 7 of 40
	// handled <nil>
	// order 8 of 2
	// handled <nil>
	// duplicate <nil>
	// skipped <nil>
	// skipped <nil>
	// inbox: the decoder skips the message
}
