package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/webhook"
)

// A partner that checks signatures, and a broker that signs.
func Example() {
	secret := webhook.NewSecret()
	verifier, err := webhook.NewVerifier(0, secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 2<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		if err := verifier.Verify(r.Header, body); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Println(r.Header.Get(webhook.HeaderID), r.Header.Get("Fanout-Type"), string(body))
	}))
	defer partner.Close()

	ctx := context.Background()
	broker, err := webhook.Open(webhook.Settings{URL: adapter.Secret(partner.URL), Secrets: []adapter.Secret{adapter.Secret(secret)}, AllowHTTP: true, AllowPrivateNetworks: true}) // for this example alone
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close(ctx)
	results := broker.Publish(ctx, []brokers.Message{{ID: "m-1", Destination: "ordering::order", Type: "Ordering.OrderPlaced.v1", Payload: []byte(`{"order":42}`)}})
	fmt.Println(results[0].Err)
	// Output:
	// m-1 Ordering.OrderPlaced.v1 {"order":42}
	// <nil>
}
