package kafka

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// mostServers is more than anybody lists: one that answers is enough.
	mostServers = 100

	dialTimeout = 3 * time.Second
	// requestTimeout bounds a request of the client's own, which it then puts to another server.
	requestTimeout = 3 * time.Second
	// leastProduceTimeout is the least that the client takes.
	leastProduceTimeout = 100 * time.Millisecond
	// Between the client's attempts: doubled from the one to the other. A round is over after the
	// timeout anyway, and the processor has a backoff of its own.
	leastBackoff = 20 * time.Millisecond
	mostBackoff  = 500 * time.Millisecond
	// recordRetries end a round whose servers refuse connections, or answer that they are no leaders.
	recordRetries = 8
	// metadataAge is how soon the client asks again where a partition is.
	metadataAge = 20 * time.Millisecond
)

// Open returns a broker. It does not connect yet: use Ping to find out.
func Open(settings Settings) (*Broker, error) {
	servers := settings.servers()
	if err := checkServers(servers); err != nil {
		return nil, fmt.Errorf("kafka: open: %w", err)
	}
	o, err := settings.options()
	if err != nil {
		return nil, fmt.Errorf("kafka: open: %w", err)
	}
	b := &Broker{options: o, seeds: servers}
	b.servers.begin(o.dial, b.returned)
	b.settings = append([]kgo.Opt{
		kgo.ClientID("fanout"), kgo.RequestTimeoutOverhead(requestTimeout), kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Each call has a client of its own, and sends what goes into one batch of each partition at a time.
		kgo.ManualFlushing(), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(2 * roundMessages), kgo.ProducerBatchMaxBytes(int32(o.maxBytes)), //nolint:gosec // bounded by the settings
		// Before the round ends, so that the server says what it waits for.
		kgo.ProduceRequestTimeout(max(o.timeout*3/4, leastProduceTimeout)), kgo.RecordRetries(recordRetries), kgo.UnknownTopicRetries(1), kgo.RequestRetries(2),
		kgo.RetryBackoffFn(func(tries int) time.Duration { return min(leastBackoff<<min(tries, 10), mostBackoff) }),
		kgo.MetadataMinAge(metadataAge),
	}, o.client...)
	first, err := b.take() // which checks the settings
	if err != nil {
		return nil, fmt.Errorf("kafka: open: %w", err)
	}
	b.release(first, true)
	return b, nil
}

// checkServers says what is wrong with the addresses, without showing more than one of them.
func checkServers(servers []string) error {
	if len(servers) == 0 || len(servers) > mostServers {
		return fmt.Errorf("there are %d bootstrap servers; name 1 to %d, as host:port", len(servers), mostServers)
	}
	for _, server := range servers {
		if strings.ContainsAny(server, "@/ ") { // a URL, perhaps with a password
			return errors.New("a bootstrap server is host:port, without scheme, user and password; those are settings of their own")
		}
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			host, port = server, "9092"
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			return fmt.Errorf("bootstrap server %q is not host:port", server)
		}
	}
	return nil
}
