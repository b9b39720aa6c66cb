package nats_test //nolint:testableexamples // it needs a server; TestSubscriber runs it

import (
	"context"
	"errors"
	"strings"
	"time"

	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/nats-io/nats.go"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/watermill"
)

// The tests of this package run with these settings; the conformance suite has its own times for a
// confirmation.
func Example() {
	broker, err := openNATS("nats://localhost:4222")
	if err != nil {
		return
	}
	_ = broker // relay, err := fanout.Open(ctx, cfg, fanout.WithBroker("partner", broker))
}

func openNATS(url string) (brokers.Broker, error) {
	conn, err := nats.Connect(url, // the publisher closes it
		nats.MaxReconnects(-1),                   // forever: the default is to give up after a while
		nats.ReconnectWait(100*time.Millisecond), // the default is 2 s
		nats.ReconnectBufSize(-1))                // while the server is away, messages fail instead of waiting to be sent some time
	if err != nil {
		return nil, err
	}
	publisher, err := watermillnats.NewPublisherWithNatsConn(conn, watermillnats.PublisherPublishConfig{
		Marshaler:         &watermillnats.NATSMarshaler{}, // metadata in headers, the payload as it is
		SubjectCalculator: watermillnats.DefaultSubjectCalculator,
		JetStream: watermillnats.JetStreamConfig{
			TrackMsgId:     true,                                        // JetStream drops repeated ids
			ConnectOptions: []nats.JSOpt{nats.MaxWait(5 * time.Second)}, // for a confirmation; well below the publish timeout
		},
	}, nil)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return watermill.New(publisher, natsOptions(conn)...), nil
}

func natsOptions(conn *nats.Conn) []watermill.Option {
	return []watermill.Option{
		watermill.WithTopic(func(m brokers.Message) string { return strings.ReplaceAll(m.Destination, "::", ".") }),
		watermill.WithClassify(classifyNATS),
		watermill.WithPing(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return conn.FlushWithContext(ctx)
		}),
		watermill.WithMaxMessageBytes(1<<20 - 64<<10), // a server takes 1 MiB, headers included, unless it is configured otherwise
	}
}

// classifyNATS tells what the errors of JetStream mean.
func classifyNATS(err error) error {
	var refused *nats.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return brokers.Permanent(err)
	case errors.Is(err, nats.ErrNoStreamResponse): // no stream has the subject
		return brokers.Unavailable(brokers.ScopeDestination, err)
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrNoServers):
		return brokers.Unavailable(brokers.ScopeBroker, err)
	case errors.As(err, &refused) && refused.ErrorCode == 10054: // larger than the stream allows
		return brokers.Permanent(err)
	case errors.As(err, &refused) && refused.Code == 503: // JetStream is not ready
		return brokers.Unavailable(brokers.ScopeBroker, err)
	default:
		return err
	}
}
