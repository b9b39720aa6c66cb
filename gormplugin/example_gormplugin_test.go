package gormplugin_test

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/gormplugin"
)

// The application keeps the user in its context, under a key of its own.
type userKey struct{}

// Every event says who acted, and its code need not think of it. (An application writes
// gormplugin.New(events, routing, gormplugin.WithEnricher(...)), and a test has a *testing.T in
// place of InExample.)
func ExampleWithEnricher() {
	fanouttest.InExample(func(t fanouttest.TB) {
		db := fanouttest.OpenConfig(t, fanouttest.Config{
			Plugin: []gormplugin.Option{gormplugin.WithEnricher(func(ctx context.Context) context.Context {
				user, _ := ctx.Value(userKey{}).(string)
				return envelope.WithActor(ctx, user)
			})},
		}, catalog(), &Order{}, &Line{})

		ctx := context.WithValue(context.Background(), userKey{}, "ada")
		events := fanouttest.Emits(t, db.WithContext(ctx), func(tx *gorm.DB) error {
			return tx.Create(placed("42")).Error
		})
		fmt.Println(events[0].Type, events[0].Message("default").Metadata.Extensions["actor"])
	})
	// Output: Ordering.OrderPlaced.v1 ada
}
