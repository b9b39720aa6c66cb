package dedup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/deduptest"
)

// A Basket is in a database of its own, here in memory.
type Basket struct{ Items int }

// An entity of a foreign store changes once, however often its message is delivered. In a program
// the store of messages is one of inbox/dedup/sqldedup or inbox/dedup/redisdedup, and the processor
// is the handler of a consumer.
func Example() {
	processor, err := dedup.New(dedup.Config[Basket]{
		Entities: deduptest.NewEntities[Basket](),
		Store:    deduptest.NewStore(),
		EntityID: func(m *inbox.Message) (string, error) { return m.OrderingKey, nil },
		Handle: func(_ context.Context, basket *Basket, m *inbox.Message) ([]dedup.Outgoing, error) {
			basket.Items++
			return []dedup.Outgoing{{Destination: "statistics", Payload: fmt.Appendf(nil, "%s has %d items", m.OrderingKey, basket.Items)}}, nil
		},
		Dispatch: dedup.DispatchEach(func(_ context.Context, o dedup.Outgoing) error {
			fmt.Printf("to %s: %s\n", o.Destination, o.Payload)
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	message := &inbox.Message{Consumer: "baskets", Key: uuid.New(), OrderingKey: "basket-7"}
	for range 3 {
		outcome, err := processor.Handle(context.Background(), message)
		fmt.Println(outcome, err)
	}
	// Output:
	// to statistics: basket-7 has 1 items
	// handled <nil>
	// duplicate <nil>
	// duplicate <nil>
}

// With tokens there is nothing to remember once a message was processed. Its producer creates the
// token before it sends; a processor does so for what it sends itself.
func Example_tokens() {
	ctx := context.Background()
	tokens := deduptest.NewTokens()
	var wire []*inbox.Message
	processor, err := dedup.New(dedup.Config[Basket]{
		Entities: deduptest.NewEntities[Basket](),
		Tokens:   tokens,
		EntityID: func(m *inbox.Message) (string, error) { return m.Consumer + " of " + m.OrderingKey, nil },
		Handle: func(_ context.Context, basket *Basket, m *inbox.Message) ([]dedup.Outgoing, error) {
			basket.Items++
			if m.Consumer == "statistics" {
				return nil, nil
			}
			return []dedup.Outgoing{{OrderingKey: m.OrderingKey, Receivers: []string{"statistics"}}}, nil
		},
		Dispatch: dedup.DispatchEach(func(_ context.Context, o dedup.Outgoing) error {
			wire = append(wire, &inbox.Message{Consumer: "statistics", Key: o.ID, OrderingKey: o.OrderingKey, Attributes: o.Fields()})
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	token := uuid.NewString()
	first := &inbox.Message{
		Consumer: "baskets", Key: uuid.New(), OrderingKey: "basket-7", Attributes: map[string]string{dedup.AttributeToken: token},
	}
	if err := tokens.Create(ctx, []dedup.Token{{Consumer: "baskets", Value: token}}, time.Now()); err != nil {
		fmt.Println(err)
	}
	wire = append(wire, first, first)
	for len(wire) > 0 {
		m := wire[0]
		wire = wire[1:]
		outcome, err := processor.Handle(ctx, m)
		fmt.Println(m.Consumer, outcome, err)
	}
	fmt.Println(tokens.Len(), "tokens left")
	// Output:
	// baskets handled <nil>
	// baskets duplicate <nil>
	// statistics handled <nil>
	// 0 tokens left
}
