package nats

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	dialTimeout = 2 * time.Second
	// writeTimeout ends a connection that takes nothing any more; meanwhile the client holds a lock
	// that no context interrupts.
	writeTimeout = 5 * time.Second
	// pingInterval and maxPings find a connection that is silent within 15 seconds.
	pingInterval = 5 * time.Second
	maxPings     = 2
	// Between attempts to connect: doubled from the one to the other.
	minReconnectDelay = 50 * time.Millisecond
	maxReconnectDelay = 2 * time.Second
)

// errURL says nothing about the URL it got: what fails to parse is often the password itself,
// unescaped.
var errURL = errors.New("nats: open: the URL is not understood; write nats://user:password@host:port, or tls:// for TLS, " +
	"several with commas between them, and escape special characters in the password (@ is %40, / is %2F, a comma is %2C)")

// Open returns a broker. It tries once to connect, for two seconds at most per server, and goes on in the
// background where that fails: use Ping to find out. No part of the URL appears in an error.
func Open(settings Settings) (*Broker, error) {
	o, err := settings.options()
	if err != nil {
		return nil, err
	}
	b := &Broker{options: o, slots: make(chan struct{}, o.maxPending), abandoned: make(chan struct{}), lanes: map[string]*lane{}}
	conn, err := nats.Connect(settings.URL.Reveal(), slices.Concat([]nats.Option{
		nats.Name("fanout"),
		nats.Timeout(dialTimeout), nats.FlusherTimeout(writeTimeout), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(maxPings),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.CustomReconnectDelay(reconnectDelay),
		// Nothing is written later, behind the back of the call that had it written.
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.asyncError(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.note(err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.note(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { b.trouble.Store(nil) }),
		nats.ConnectHandler(func(*nats.Conn) { b.trouble.Store(nil) }),
	}, o.client)...)
	if err != nil {
		return nil, fmt.Errorf("nats: open: %w", err)
	}
	// The broker has a bound of its own for what is unconfirmed. The client's counts what no call waits for
	// any more as well, and so a destination that is silent would keep others from being sent to.
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncTimeout(o.timeout), jetstream.WithPublishAsyncMaxPending(math.MaxInt32))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("nats: open: %w", err)
	}
	b.conn, b.js, b.gate = conn, js, &adapter.Gate{}
	return b, nil
}

var schemes = []string{"nats", "tls", "ws", "wss"}

func validURL(servers string) bool {
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		if err != nil || u.Hostname() == "" || !validPort(u.Port()) || !slices.Contains(schemes, u.Scheme) {
			return false
		}
	}
	return true
}

// validPort knows what the package url does not: how many ports there are. Empty is the default one.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

func reconnectDelay(attempts int) time.Duration {
	return min(minReconnectDelay<<min(attempts, 10), maxReconnectDelay)
}
