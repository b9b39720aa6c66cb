package nats_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/nats"
)

// startOrdering starts a server with a stream for ordering.*.
func startOrdering(t *testing.T) *jetServer {
	t.Helper()
	s := startServer(t, nil)
	s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.*"}})
	return s
}

// TestMissingStream: a subject without a stream is out, by itself.
func TestMissingStream(t *testing.T) {
	t.Parallel()
	s := startOrdering(t)
	b := open(t, s.url)
	results := b.Publish(t.Context(), []brokers.Message{
		numbered("nowhere::order", "a", 1), numbered("ordering::order", "a", 2), numbered("ordering::order", "b", 3),
	})
	assert.Equal(t, []string{"unavailable destination", "not_sent", ""}, classes(results), "%v", results)
	require.ErrorIs(t, results[0].Err, jetstream.ErrNoStreamResponse)
	assert.ErrorContains(t, results[0].Err, "create a stream with this subject")
	assert.Equal(t, "ORDERING:1", results[2].BrokerMessageID)

	require.NoError(t, b.CheckDestination(t.Context(), "ordering::order"))
	class, scope := brokers.Classify(b.CheckDestination(t.Context(), "nowhere::order"))
	assert.Equal(t, brokers.ClassUnavailable, class)
	assert.Equal(t, brokers.ScopeDestination, scope)
	class, _ = brokers.Classify(b.CheckDestination(t.Context(), ""))
	assert.Equal(t, brokers.ClassPermanent, class)
}

// TestCreateStreams: processes that create the stream of a subject at the same time lose nothing,
// and keep the order.
func TestCreateStreams(t *testing.T) {
	t.Parallel()
	const processes, each = 4, 20
	s := startServer(t, nil)
	var all sync.WaitGroup
	for process := range processes {
		b := open(t, s.url, nats.Settings{SubjectPrefix: "events.", CreateDestinations: true, Stream: nats.StreamSettings{
			MaxAge: time.Hour, DuplicateWindow: time.Minute, MaxMessages: int64(1000 + process), // which of them is created first is open
		}})
		require.NoError(t, b.CheckDestination(t.Context(), "ordering::order"), "it will be created")
		all.Go(func() {
			msgs := make([]brokers.Message, each)
			for i := range msgs {
				msgs[i] = numbered("ordering::order", "key-"+string(rune('a'+process)), process*each+i)
			}
			for _, result := range b.Publish(t.Context(), msgs) {
				assert.NoError(t, result.Err)
			}
		})
	}
	all.Wait()
	stream, err := s.js.Stream(t.Context(), "events+ordering+order")
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	assert.Equal(t, []string{"events.ordering.order"}, config.Subjects)
	assert.Equal(t, time.Hour, config.MaxAge)
	last := map[string]string{}
	received := s.received(t, "events.ordering.order", "ordering::order")
	require.Len(t, received, processes*each)
	for _, m := range received {
		n := strings.Repeat(" ", 8-len(m.ID)) + m.ID
		assert.Less(t, last[m.OrderingKey], n)
		last[m.OrderingKey] = n
	}
}

// TestRefusals: what the server refuses costs the message, its destination or its key, and no more.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *server.Options) { o.MaxPayload = 256 << 10 })
	s.stream(t, jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small"}, MaxMsgSize: 1 << 10})
	s.stream(t, jetstream.StreamConfig{Name: "FULL", Subjects: []string{"full"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	s.stream(t, jetstream.StreamConfig{Name: "SEALED", Subjects: []string{"sealed"}})
	sealed, err := s.js.Stream(t.Context(), "SEALED")
	require.NoError(t, err)
	config := sealed.CachedInfo().Config
	config.Sealed = true
	_, err = s.js.UpdateStream(t.Context(), config)
	require.NoError(t, err)

	b := open(t, s.url)
	sized := func(destination, key string, n, size int) brokers.Message {
		m := numbered(destination, key, n)
		m.Payload = make([]byte, size)
		return m
	}
	results := b.Publish(t.Context(), []brokers.Message{
		sized("small", "a", 1, 2<<10), sized("small", "a", 2, 10), sized("small", "b", 3, 10), // of the stream's own limit
		sized("small", "c", 4, 300<<10), // above the server's
		sized("small", "d", 5, 1<<20),   // above the broker's
	})
	assert.Equal(t, []string{"permanent", "not_sent", "", "permanent", "permanent"}, classes(results))
	assert.ErrorContains(t, results[0].Err, "raise max_msg_size of the stream")
	assert.ErrorContains(t, results[3].Err, "the server takes 262144 bytes")
	assert.ErrorContains(t, results[4].Err, "at most 1015808 are allowed")

	results = b.Publish(t.Context(), []brokers.Message{numbered("full", "a", 6), numbered("full", "a", 7), numbered("full", "a", 8)})
	assert.Equal(t, []string{"", "unavailable destination", "not_sent"}, classes(results))
	assert.ErrorContains(t, results[1].Err, "discards new messages")
	results = b.Publish(t.Context(), []brokers.Message{numbered("sealed", "a", 9)})
	assert.Equal(t, []string{"unavailable destination"}, classes(results))
	assert.ErrorContains(t, results[0].Err, "sealed")
}

// TestRequiredFields: id and type must travel; what else headers cannot carry is named.
func TestRequiredFields(t *testing.T) {
	t.Parallel()
	s := startOrdering(t)
	b := open(t, s.url, nats.Settings{MaxPending: 2}) // a message that cannot be sent gives its slot back
	bad := make([]brokers.Message, 5)
	for i := range bad {
		bad[i] = numbered("ordering::order", "", i)
	}
	bad[0].ID, bad[1].ID, bad[2].Type, bad[3].Type = "", "a\r\nb", " T.v1", strings.Repeat("T", 1025)
	bad[4].Attributes = []brokers.Attribute{
		{Name: "Nats-TTL", Value: "1s"},
		{Name: "nats-rollup", Value: "all"},
		{Name: "Status", Value: "503"},
		{Name: "a b", Value: "x"},
		{Name: "x", Value: "a\nb"},
		{Name: "y", Value: "blank "},
		{Name: "fits", Value: "ünï"},
		{Name: "long", Value: strings.Repeat("v", 40<<10)},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results := b.Publish(ctx, bad)
	assert.Equal(t, []string{"permanent", "permanent", "permanent", "permanent", ""}, classes(results))
	assert.Equal(t, []string{"Nats-TTL", "nats-rollup", "Status", "a b", "x", "y", "long"}, results[4].Omitted)
	received := s.received(t, "ordering.order", "ordering::order")
	require.Len(t, received, 1)
	assert.Equal(t, []brokers.Attribute{{Name: "fits", Value: "ünï"}}, received[0].Attributes)
}

// TestOddKeys: whatever a key is, it travels, and no two of them become one.
func TestOddKeys(t *testing.T) {
	t.Parallel()
	s := startOrdering(t)
	keys := []string{"a", " a", "a ", "a\n", "\ta", "50%", "50%25", "%0A", "\n", " ", "ключ", "a b"}
	for i, key := range keys {
		require.NoError(t, open(t, s.url).Publish(t.Context(), []brokers.Message{numbered("ordering::order", key, i)})[0].Err)
	}
	for i, m := range s.received(t, "ordering.order", "ordering::order") {
		assert.Equal(t, keys[i], m.OrderingKey)
	}
}

// TestPermissions: the server drops what a user may not publish, and says so beside the answers.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "admin"},
			{Username: "relay", Password: "hunter2", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"ordering.*"}}}},
		}
	}, client.UserInfo("admin", "admin"))
	s.stream(t, jetstream.StreamConfig{Name: "ALL", Subjects: []string{"ordering.*", "billing.*"}})
	b := open(t, "nats://relay:hunter2@"+s.addr())
	for range 2 { // and the second call asks again
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		results := b.Publish(ctx, []brokers.Message{
			numbered("billing::order", "a", 1), numbered("ordering::order", "b", 2), numbered("billing::order", "c", 3), numbered("ordering::order", "a", 4),
		})
		require.NoError(t, ctx.Err(), "it is known long before the deadline")
		cancel()
		assert.Equal(t, []string{"unavailable destination", "", "unavailable destination", "not_sent"}, classes(results))
		assert.ErrorContains(t, results[0].Err, "may not publish to the subject")
	}
	require.NoError(t, b.CheckDestination(t.Context(), "ordering::order"), "the user may not ask")

	creating := open(t, "nats://relay:hunter2@"+s.addr(), nats.Settings{CreateDestinations: true})
	require.NoError(t, s.js.DeleteStream(t.Context(), "ALL"))
	results := creating.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 5), numbered("ordering::order", "a", 6)})
	assert.Equal(t, []string{"unavailable destination", "not_sent"}, classes(results))
	assert.ErrorContains(t, results[0].Err, "the user needs to publish to $JS.API.STREAM.CREATE.ordering+order")
}

// TestCredentials: credentials that the server refuses are an outage, and secrets stay secret.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *server.Options) { o.Username, o.Password = "relay", "right" }, client.UserInfo("relay", "right"))
	s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.*"}})
	b := open(t, "nats://relay:hunter2@"+s.addr())
	results := b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 1), numbered("ordering::order", "", 2)})
	assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results))
	assert.ErrorContains(t, results[0].Err, "check user and password")
	for _, err := range []error{results[0].Err, results[1].Err, b.Ping(t.Context()), b.CheckDestination(t.Context(), "ordering::order")} {
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	right := open(t, "nats://"+s.addr(), nats.Settings{Client: []client.Option{client.UserInfo("relay", "right")}})
	require.NoError(t, right.Ping(t.Context()))
	assert.Equal(t, []string{""}, classes(right.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 1)})))
}

// TestTLS: the server's certificate is checked, by the authorities that were named.
func TestTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil) // for its certificate, which is for 127.0.0.1 and its own authority
	t.Cleanup(certified.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	secured := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted}
	s := startServer(t, func(o *server.Options) {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certified.TLS.Certificates}
	}, client.Secure(secured))
	s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.*"}})
	b := open(t, "tls://"+s.addr(), nats.Settings{TLSConfig: secured})
	assert.Equal(t, []string{""}, classes(b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 1)})))
	suspicious := open(t, "tls://"+s.addr())
	assert.Equal(t, []string{"unavailable broker"}, classes(suspicious.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 2)})))
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the client tells why from its second attempt on
		assert.ErrorContains(c, suspicious.Ping(t.Context()), "certificate signed by unknown authority")
	}, patience, time.Millisecond)
}

// TestUnreachable: Open needs no server; publishing fails at once, nothing is kept to be written
// later, and the broker finds a server that comes.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := startOrdering(t)
	url := s.url
	s.stop(t)
	b := open(t, url)
	results := b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 1), numbered("ordering::order", "b", 2)})
	assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results))
	assert.ErrorContains(t, results[0].Err, "check that the server runs")
	require.Error(t, b.Ping(t.Context()))
	s.start(t)
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, patience, time.Millisecond)
	assert.Equal(t, []string{""}, classes(b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 3)})))
	received := s.received(t, "ordering.order", "ordering::order")
	require.Len(t, received, 1)
	assert.Equal(t, "id-3", received[0].ID)
}

// TestWithoutJetStream: a server, or an account, whose JetStream is off is told from one that has no
// stream.
func TestWithoutJetStream(t *testing.T) {
	t.Parallel()
	message := []brokers.Message{numbered("ordering::order", "a", 1), numbered("ordering::order", "a", 2)}
	off := startServer(t, func(o *server.Options) { o.JetStream = false })
	within := startServer(t, func(o *server.Options) {
		account := server.NewAccount("PARTNER")
		o.Accounts = []*server.Account{account}
		o.Users = []*server.User{{Username: "admin", Password: "admin"}, {Username: "relay", Password: "relay", Account: account}}
	}, client.UserInfo("admin", "admin"))
	for url, want := range map[string]string{off.url: "jetstream not enabled", "nats://relay:relay@" + within.addr(): "jetstream not enabled for account"} {
		for _, b := range []*nats.Broker{open(t, url), open(t, url, nats.Settings{CreateDestinations: true})} {
			results := b.Publish(t.Context(), message)
			assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results), "%v", results)
			require.ErrorContains(t, results[0].Err, want)
			require.ErrorContains(t, results[0].Err, "enable JetStream")
			require.ErrorContains(t, b.Ping(t.Context()), "enable JetStream")
		}
	}
}

// TestStreamIsDeleted: what a stream confirmed was stored; what comes after its end waits for another
// one.
func TestStreamIsDeleted(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	config := jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.*"}}
	s.stream(t, config)
	b := open(t, s.url)
	assert.Equal(t, []string{""}, classes(b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 1)})))
	require.NoError(t, s.js.DeleteStream(t.Context(), "ORDERING"))
	results := b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 2), numbered("ordering::order", "a", 3)})
	assert.Equal(t, []string{"unavailable destination", "not_sent"}, classes(results))
	s.stream(t, config)
	assert.Equal(t, []string{"", ""}, classes(b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 2), numbered("ordering::order", "a", 3)})))
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "http://localhost", "nats://", "nats://u:hunter2#@:x", "redis://u:hunter2@h", "nats://u:hunter2%@h", "a,,b"} {
		_, err := nats.Open(nats.Settings{URL: adapter.Secret(url)})
		require.ErrorContains(t, err, "the URL is not understood", url)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	for _, prefix := range []string{".", "a..", "a b.", "*.", ">", "ü", strings.Repeat("a", 121)} {
		_, err := nats.Open(nats.Settings{URL: "nats://localhost", SubjectPrefix: prefix})
		require.ErrorContains(t, err, "the subject prefix", prefix)
	}
}

// TestFewSlots: calls that share very few slots finish all the same, and keep their order.
func TestFewSlots(t *testing.T) {
	t.Parallel()
	s := startOrdering(t)
	b := open(t, s.url, nats.Settings{MaxPending: 2})
	var all sync.WaitGroup
	for caller := range 6 {
		all.Go(func() {
			msgs := make([]brokers.Message, 50)
			for i := range msgs {
				msgs[i] = numbered("ordering::order", "", caller*len(msgs)+i)
			}
			for _, result := range b.Publish(t.Context(), msgs) {
				assert.NoError(t, result.Err)
			}
		})
	}
	all.Wait()
	assert.Len(t, s.received(t, "ordering.order", "ordering::order"), 300)
}

// A message whose time to live is over leaves its stream, and one without stays; what is left of the time is rounded up,
// since the servers know whole seconds.
func TestMessageTTL(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	b := open(t, s.url, nats.Settings{MessageTTL: true, CreateDestinations: true})
	msgs := []brokers.Message{numbered("ordering::order", "a", 1), numbered("ordering::order", "a", 2), numbered("ordering::order", "a", 3)}
	msgs[0].ExpiresIn, msgs[1].ExpiresIn = time.Millisecond, time.Hour+time.Millisecond
	for _, result := range b.Publish(t.Context(), msgs) {
		require.NoError(t, result.Err)
	}
	stream, err := s.js.Stream(t.Context(), "ordering+order")
	require.NoError(t, err)
	for sequence, want := range map[uint64]string{1: "1s", 2: "3601s", 3: ""} {
		stored, err := stream.GetMsg(t.Context(), sequence)
		require.NoError(t, err)
		assert.Equal(t, want, stored.Header.Get(jetstream.MsgTTLHeader))
	}
	require.Eventually(t, func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs == 2 && info.State.FirstSeq == 2
	}, patience, 10*time.Millisecond)
}

// A stream that does not allow it is its destination's problem: no message is charged, and the error says what to do.
func TestMessageTTLIsNotAllowed(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.>"}})
	b := open(t, s.url, nats.Settings{MessageTTL: true})
	msgs := []brokers.Message{numbered("ordering::order", "a", 1)}
	require.NoError(t, b.Publish(t.Context(), msgs)[0].Err, "one without needs nothing")
	msgs = []brokers.Message{numbered("ordering::order", "a", 2)}
	msgs[0].ExpiresIn = time.Minute
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, []string{"unavailable destination"}, classes(results))
	require.ErrorContains(t, results[0].Err, "per-message TTL is disabled")
	require.ErrorContains(t, results[0].Err, "--allow-msg-ttl")
	off := open(t, s.url)
	require.NoError(t, off.Publish(t.Context(), msgs)[0].Err)
}
