package natsconsumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/brokers/nats/natsconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// The handler of most consumers is one that notes each message in the transaction of its effect
// (inbox.NewHandlers). The server of this example is one in memory, with a message in a stream.
func ExampleConsumer() {
	url, closeAll := serve()
	defer closeAll()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	consumer, err := natsconsumer.NewConsumer(conn, "ORDERING", "billing",
		inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			fmt.Println(m.Consumer, "handles", m.Type, "of", m.OrderingKey)
			stop() // one is enough for an example
			return inbox.Handled, nil
		}), natsconsumer.Config{
			ConsumerConfig: inbox.ConsumerConfig{
				Workers: 20, DeadLetters: inbox.Always("dead.billing"), Log: slog.New(slog.DiscardHandler),
			},
			Create: &jetstream.ConsumerConfig{FilterSubject: "ordering.order"},
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("error:", consumer.Run(ctx))
	// Output:
	// billing handles Ordering.OrderPlaced.v1 of order-1
	// error: <nil>
}

// serve starts a server with a stream that has a message.
func serve() (url string, closeAll func()) {
	dir, err := os.MkdirTemp("", "example")
	must(err)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	must(err)
	s.Start()
	conn, err := nats.Connect(s.ClientURL(), nats.RetryOnFailedConnect(true))
	must(err)
	js, err := jetstream.New(conn)
	must(err)
	ctx := context.Background()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.>"}})
	must(err)
	_, err = js.PublishMsg(ctx, &nats.Msg{
		Subject: "ordering.order", Header: nats.Header{"ordering_key": {"order-1"}},
		Data: []byte(`{"specversion":"1.0","id":"1","source":"/ordering","type":"Ordering.OrderPlaced.v1","data":{"id":"1"}}`),
	})
	must(err)
	return s.ClientURL(), func() {
		conn.Close()
		s.Shutdown()
		s.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
