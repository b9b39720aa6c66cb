package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// An error that is final for the client is that of one server where others answer, like one that it repeats:
// that server is put out, and costs its partitions.
func TestFinalErrorsOfOneServer(t *testing.T) {
	t.Parallel()
	type dial = func(ctx context.Context, network, to string) (net.Conn, error)
	// answering takes what is said first, answers, and closes.
	answering := func(answer string) dial {
		return func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 4096))
				_, _ = io.WriteString(theirs, answer)
				_ = theirs.Close()
			}()
			return ours, nil
		}
	}
	failing := func(err error) dial {
		return func(context.Context, string, string) (net.Conn, error) { return nil, err }
	}
	for name, way := range map[string]struct {
		dial   dial
		advice string
	}{
		"takes and closes": {answering(""), "the server hung up"}, // a load balancer without a server
		"talks no Kafka":   {answering("HTTP/1.1 503 Service Unavailable\r\n\r\n"), "check that the servers run"},
		"name is gone": {
			failing(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "kafka-2", IsNotFound: true}}),
			"check that the servers run",
		},
		"name server fails": {
			failing(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "kafka-2", IsTemporary: true}}),
			"check that the servers run",
		},
		"certificate": {
			failing(&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}), "certificate authority",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startThree(t, 6)
			victim := c.seeds()[2]
			costsItsPartitions(t, open(t, c.seeds()[:2], kafka.Settings{Dial: func(ctx context.Context, network, to string) (net.Conn, error) {
				if to == victim {
					return way.dial(ctx, network, to)
				}
				return new(net.Dialer).DialContext(ctx, network, to)
			}}), victim, way.advice)
		})
	}
	t.Run("login", func(t *testing.T) { // its users are not yet those of the others
		t.Parallel()
		fake, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p"), kfake.SeedTopics(6, "there"))
		require.NoError(t, err)
		t.Cleanup(fake.Close)
		for p := range int32(6) {
			require.NoError(t, fake.MoveTopicPartition("there", p, p%3))
		}
		fake.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			if fake.CurrentNode() != 2 {
				return nil, nil, false //nolint:nilnil // the fake cluster answers
			}
			answer := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return answer, nil, true
		})
		addresses := fake.ListenAddrs()
		costsItsPartitions(t, open(t, addresses[:2], kafka.Settings{SASL: kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "p"}}), addresses[2], "check user, password")
	})
}

// costsItsPartitions publishes while server 2 of three is out.
func costsItsPartitions(t *testing.T, b *kafka.Broker, address, advice string) {
	t.Helper()
	for call := range 6 {
		n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
		for kind := range n {
			assert.Contains(t, []string{"", "unavailable partition", "not_sent"}, kind, "call %d: %s", call, said[kind])
		}
		assert.Positive(t, n[""], "call %d", call)
		assert.Positive(t, n["unavailable partition"], "call %d", call)
		assert.Contains(t, said["unavailable partition"], fmt.Sprintf("server 2 (%s)", address), "call %d", call)
		assert.Contains(t, said["unavailable partition"], advice, "call %d", call)
	}
}
