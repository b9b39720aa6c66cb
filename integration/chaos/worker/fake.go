package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// servePubSub is Google's fake of Pub/Sub. It prints two addresses: its own, and one where it shows all
// that it holds, by HTTP.
func servePubSub(ctx context.Context, _ *scenario.Ledger) error {
	server := pstest.NewServerWithAddress("127.0.0.1:0")
	for _, stream := range scenario.Streams() {
		topic := fmt.Sprintf("projects/%s/topics/%s", scenario.Project, scenario.Topic(stream))
		if _, err := server.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
			return err
		}
		for _, subscription := range []string{scenario.Subscription(stream), scenario.ProjectionSubscription(stream)} {
			if _, err := server.GServer.CreateSubscription(ctx, &pubsubpb.Subscription{
				Name: subscription, Topic: topic, AckDeadlineSeconds: 10, EnableMessageOrdering: true,
			}); err != nil {
				return err
			}
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	show := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		lines := json.NewEncoder(w)
		for _, m := range server.Messages() {
			if err := lines.Encode(scenario.Message{ID: m.ID, Key: m.OrderingKey, Attributes: m.Attributes, Data: m.Data, At: m.PublishTime}); err != nil {
				panic(http.ErrAbortHandler) // and whoever asked sees that it is not all
			}
		}
	})}
	served := make(chan error, 1)
	go func() { served <- show.Serve(listener) }()
	fmt.Fprintln(os.Stdout, server.Addr, listener.Addr())
	<-ctx.Done()
	err = errors.Join(show.Close(), server.Close())
	if serving := <-served; !errors.Is(serving, http.ErrServerClosed) {
		err = errors.Join(err, serving)
	}
	return err
}
