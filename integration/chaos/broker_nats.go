//go:build unix

package chaos

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/integration/chaos/worker"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// natsServer is a process of the worker's program, since NATS' server is a library of Go. It writes
// each message to the disk before it confirms it.
var natsServer = &serverKind{
	name:    "nats",
	start:   startNATS,
	prepare: makeStream,
	signals: map[Kind]syscall.Signal{NATSTerm: syscall.SIGTERM, NATSKill: syscall.SIGKILL},
	address: host,
	through: func(url, address string) string { return behind(url, address) },
}

func startNATS(ctx context.Context, s *fixture) (*server, error) {
	var version string
	name := "chaos-" + rand.Text()
	own, err := testservers.OwnProgram(ctx, "NATS", s.programs.plain, func(dir, port string) []string {
		return []string{
			worker.RoleVariable + "=serve-nats", worker.NameVariable + "=" + name, worker.StoreVariable + "=" + dir,
			worker.ServerVariable + "=" + net.JoinHostPort("127.0.0.1", port), worker.LedgerVariable + "=" + dir + ".ledger",
		}
	}, func(ctx context.Context, address string) (err error) {
		version, err = natsGreets(ctx, address, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	own.URL, own.Version = "nats://"+own.Address(), version
	return s.owned(own), nil
}

// natsGreets succeeds when the server of a name greets at an address, and returns its version.
func natsGreets(ctx context.Context, address, name string) (version string, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	said, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	var info struct {
		Name    string `json:"server_name"`
		Version string `json:"version"`
	}
	greeting, greets := strings.CutPrefix(said, "INFO ")
	if err := json.Unmarshal([]byte(greeting), &info); err != nil || !greets || info.Name != name {
		return "", fmt.Errorf("another server answers: %.100s", said)
	}
	return info.Version, nil
}

// askNATS talks to JetStream over a connection of its own.
func askNATS(ctx context.Context, url string, talk func(context.Context, jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(ctx, questionPatience)
	defer cancel()
	conn, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	return talk(ctx, js)
}

// makeStream makes the stream that takes all subjects, and keeps what was read.
func makeStream(ctx context.Context, _ *fixture, at *server) error {
	config := jetstream.StreamConfig{Name: scenario.JetStream}
	for _, stream := range scenario.Streams() {
		config.Subjects = append(config.Subjects, scenario.Subject(stream))
	}
	return askNATS(ctx, at.url, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, config)
		return err
	})
}

// readNATS reads the whole stream.
func readNATS(ctx context.Context, s *servers, hold holder) error {
	return askNATS(ctx, s.brokers[natsServer].url, func(ctx context.Context, js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, scenario.JetStream)
		if err != nil {
			return err
		}
		state := stream.CachedInfo().State
		if held := state.LastSeq - state.FirstSeq + 1; state.Msgs != held && state.Msgs > 0 || state.FirstSeq > 1 {
			return fmt.Errorf("chaos: the stream of NATS has %d messages of its places %d to %d", state.Msgs, state.FirstSeq, state.LastSeq)
		}
		reader, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		return readJetStream(ctx, reader, state.LastSeq, hold)
	})
}

// readJetStream reads a stream up to a place, without a hole.
func readJetStream(ctx context.Context, reader jetstream.Consumer, last uint64, hold holder) error {
	const piece = 1000
	for next := uint64(1); next <= last; {
		batch, err := reader.Fetch(piece, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if meta.Sequence.Stream != next {
				return fmt.Errorf("chaos: the stream of NATS goes from %d to %d", next-1, meta.Sequence.Stream)
			}
			next++
			if err := hold(natsFields(m), m.Data(), meta.Timestamp); err != nil {
				return err
			}
		}
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}

// natsFields are the headers, but for the one that is for the server.
func natsFields(m jetstream.Msg) map[string]string {
	fields := map[string]string{}
	for name, values := range m.Headers() {
		fields[name] = strings.Join(values, ", ")
	}
	if fields[jetstream.MsgIDHeader] == fields["id"]+"@"+m.Subject() {
		delete(fields, jetstream.MsgIDHeader)
	}
	return fields
}
