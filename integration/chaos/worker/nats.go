package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsbroker "github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/nats/natsconsumer"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// ackWait is how long JetStream waits for a sign of life from who has claimed a message. Stops and
// faults of the network last longer.
const ackWait = 3 * time.Second

// serveNATS is a server with JetStream that writes each message to the disk before it confirms it.
func serveNATS(ctx context.Context, _ *scenario.Ledger) error {
	host, port, err := net.SplitHostPort(os.Getenv(ServerVariable))
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	// Its name tells the rig that it is not another one.
	node, err := server.NewServer(&server.Options{
		ServerName: os.Getenv(NameVariable), Host: host, Port: number, JetStream: true, StoreDir: os.Getenv(StoreVariable), SyncAlways: true, NoSigs: true,
	})
	if err != nil {
		return err
	}
	node.SetLogger(&natsLog{}, false, false)
	node.Start()
	<-ctx.Done()
	node.Shutdown()
	node.WaitForShutdown()
	return nil
}

// natsLog writes what goes wrong in a NATS server to standard error.
type natsLog struct{}

func (natsLog) line(level, format string, args []any) {
	fmt.Fprintln(os.Stderr, level, fmt.Sprintf(format, args...))
}

// Fatalf implements the server's interface, as its other methods do.
func (l natsLog) Fatalf(format string, args ...any) {
	l.line("fatal", format, args)
	os.Exit(ExitCannot)
}

// Errorf logs.
func (l natsLog) Errorf(format string, args ...any) { l.line("error", format, args) }

// Warnf logs.
func (l natsLog) Warnf(format string, args ...any) { l.line("warning", format, args) }

// Noticef does not.
func (natsLog) Noticef(string, ...any) {}

// Debugf does not.
func (natsLog) Debugf(string, ...any) {}

// Tracef does not.
func (natsLog) Tracef(string, ...any) {}

// openNATS makes a connection that is there as soon as the server is, and finds out within seconds
// when it is not any more.
func openNATS(url string) (*nats.Conn, error) {
	const reconnect, ping = 200 * time.Millisecond, 2 * time.Second
	return nats.Connect(url, nats.Timeout(2*readPatience), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(reconnect),
		nats.PingInterval(ping), nats.MaxPingsOutstanding(2), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

// observeNATS follows the stream from where its ledger ends, and records each message.
func observeNATS(ctx context.Context, ledger *scenario.Ledger) error {
	var last uint64
	if err := scenario.ReadLedger(os.Getenv(LedgerVariable), func(line scenario.Line) {
		if n, err := strconv.ParseUint(line.Entry, 10, 64); err == nil {
			last = max(last, n)
		}
	}); err != nil {
		return err
	}
	conn, err := openNATS(os.Getenv(ServerVariable))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := followStream(ctx, js, &last, ledger); err != nil {
			wait(ctx, readPatience/5)
		}
	}
	conn.Close()
	return ended(ledger, scenario.Line{})
}

// errSkipped says that messages of the stream did not come, and have to be asked for once more.
var errSkipped = errors.New("messages of the stream were skipped")

// followStream reads what comes after last, until something fails.
func followStream(ctx context.Context, js jetstream.JetStream, last *uint64, ledger *scenario.Ledger) error {
	asking, cancel := context.WithTimeout(ctx, 2*readPatience)
	defer cancel()
	consumer, err := js.OrderedConsumer(asking, scenario.JetStream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *last + 1,
	})
	if err != nil {
		return err
	}
	for begun := false; ctx.Err() == nil; {
		batch, err := consumer.Fetch(prefetch, jetstream.FetchMaxWait(readPatience))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if begun && meta.Sequence.Stream != *last+1 { // what was on its way to a question that had timed out
				return errSkipped
			}
			begun = true
			line := scenario.Line{Broker: scenario.NATS, Entry: strconv.FormatUint(meta.Sequence.Stream, 10), Message: m.Headers().Get("id")}
			if err := ledger.Write(line); err != nil {
				return err
			}
			*last = meta.Sequence.Stream
		}
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return err
		}
	}
	return nil
}

// projectNATS consumes the stream in one of the projectors: for the order of its keys, JetStream
// wants one process at a time.
func projectNATS(p *projector, broker string, cfg config.Broker) error {
	if os.Getenv(SoleVariable) == "" {
		return nil
	}
	conn, err := openNATS(settingsOf[*natsbroker.Settings](cfg).URL.Reveal())
	if err != nil {
		return err
	}
	p.closers = append(p.closers, func() error { conn.Close(); return nil })
	consumer, err := natsconsumer.NewConsumer(conn, scenario.JetStream, scenario.ProjectionGroup, p.handler,
		natsconsumer.Config{ConsumerConfig: configOf(broker), Exclusive: true, Create: &jetstream.ConsumerConfig{AckWait: ackWait}})
	p.consumers = append(p.consumers, consumer)
	return err
}
