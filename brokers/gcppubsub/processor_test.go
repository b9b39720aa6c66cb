package gcppubsub_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

// A message at which Pub/Sub fails each time is abandoned, and it alone: the messages that share its requests lose
// no attempt.
func TestProcessor(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	relaytest.FindsPoison(t, s.open(t, gcppubsub.Settings{Topic: func(string) string { return "orders" }}), func(id string) {
		s.reacts(refusingWith(codes.Unknown, id))
	})
}
