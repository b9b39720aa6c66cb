package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/failure"
)

// A rule says what an error code of Kafka means. The documentation of the package has the same table.
type rule struct {
	class  brokers.Class
	scope  brokers.Scope
	advice string
}

func destinationOut(advice string) rule {
	return rule{brokers.ClassUnavailable, brokers.ScopeDestination, advice}
}

func brokerOut(advice string) rule {
	return rule{brokers.ClassUnavailable, brokers.ScopeBroker, advice}
}

const (
	passes    = "this passes by itself when the partition has a leader and enough replicas; see kafka-topics --describe"
	replicas  = "bring servers back, or lower min.insync.replicas of the topic"
	producer  = "the cluster has forgotten the producer, or gave its number to another; the next call begins with a new one"
	starting  = "the cluster is starting, or has no controller; this passes by itself when most of its servers run"
	loginFail = "check user, password and mechanism of SASL"
)

// rules by error code (https://kafka.apache.org/protocol#protocol_error_codes). Every other code is
// retryable.
var rules = map[int16]rule{
	kerr.UnknownTopicOrPartition.Code:      destinationOut("create the topic, or let the broker do it (create_destinations, WithCreateTopics)"),
	kerr.UnknownTopicID.Code:               destinationOut("the topic was deleted, and perhaps made anew: the next call asks for it by its name again"),
	kerr.InvalidTopicException.Code:        destinationOut("choose another destination, or in Go another topic for it (WithTopic)"),
	kerr.TopicAuthorizationFailed.Code:     destinationOut("grant the user Write and Describe on the topic (kafka-acls)"),
	kerr.PolicyViolation.Code:              destinationOut("the cluster's policy for new topics forbids it: create the topic yourself"),
	kerr.InvalidPartitions.Code:            destinationOut("check the settings of the topics (topics, WithCreateTopics)"),
	kerr.InvalidReplicationFactor.Code:     destinationOut("check the settings of the topics (topics, WithCreateTopics), and the number of servers"),
	kerr.NotEnoughReplicas.Code:            destinationOut(replicas),
	kerr.NotEnoughReplicasAfterAppend.Code: destinationOut(replicas),
	kerr.LeaderNotAvailable.Code:           destinationOut(passes),
	kerr.NotLeaderForPartition.Code:        destinationOut(passes),
	kerr.FencedLeaderEpoch.Code:            destinationOut(passes),
	kerr.UnknownLeaderEpoch.Code:           destinationOut(passes),
	kerr.KafkaStorageError.Code:            destinationOut("a disk of the partition's leader is offline; see its log"),
	// Both are said of every message of the topic: each has headers, and the time of this machine.
	kerr.InvalidTimestamp.Code:            destinationOut("check this machine's clock, and message.timestamp.before.max.ms and after.max.ms of the topic"),
	kerr.UnsupportedForMessageFormat.Code: destinationOut("raise message.format.version of the topic: headers need 0.11"),

	kerr.ClusterAuthorizationFailed.Code: brokerOut("grant the user Write on the topics, and before Kafka 3.0 IdempotentWrite on the cluster as well (kafka-acls)"),
	kerr.SaslAuthenticationFailed.Code:   brokerOut(loginFail),
	kerr.UnsupportedSaslMechanism.Code:   brokerOut(loginFail),
	kerr.IllegalSaslState.Code:           brokerOut(loginFail),
	kerr.ThrottlingQuotaExceeded.Code:    brokerOut("raise the user's quota, or publish more slowly"),
	kerr.RequestTimedOut.Code:            brokerOut("the cluster is slow or short of servers; see its logs"),
	kerr.BrokerNotAvailable.Code:         brokerOut(""),
	// A server that has no controller to get producers' numbers from.
	kerr.CoordinatorLoadInProgress.Code: brokerOut(starting),
	kerr.CoordinatorNotAvailable.Code:   brokerOut(starting),
	kerr.NotCoordinator.Code:            brokerOut(starting),
	kerr.NetworkException.Code:          brokerOut(""),
	kerr.UnsupportedVersion.Code:        brokerOut("Kafka 0.11 or later is needed"),
	kerr.OutOfOrderSequenceNumber.Code:  brokerOut(producer),
	kerr.UnknownProducerID.Code:         brokerOut(producer),
	kerr.InvalidProducerIDMapping.Code:  brokerOut(producer),
	kerr.InvalidProducerEpoch.Code:      brokerOut(producer),
	kerr.ProducerFenced.Code:            brokerOut(producer),

	kerr.MessageTooLarge.Code:    {brokers.ClassPermanent, "", "raise max.message.bytes of the topic, or lower max_payload_bytes"},
	kerr.RecordListTooLarge.Code: {brokers.ClassPermanent, "", "raise segment.bytes of the topic, or lower max_payload_bytes"},
	kerr.InvalidRecord.Code:      {brokers.ClassPermanent, "", "the topic takes no such message: see its cleanup.policy (compact needs a key)"},
	kerr.CorruptMessage.Code:     {brokers.ClassRetryable, "", "the batch was damaged on its way"},
}

// refusals are codes that say something about a message of a batch, and refuse all of the batch.
var refusals = map[int16]bool{
	kerr.MessageTooLarge.Code: true, kerr.RecordListTooLarge.Code: true, kerr.InvalidRecord.Code: true, kerr.CorruptMessage.Code: true,
}

// errNotCreated is the error of a topic that is missing and that the cluster did not create.
var errNotCreated = errors.New("the topic is missing, and could not be created")

// code is the error code of Kafka in an error, 0 where there is none.
func code(err error) int16 {
	var said *kerr.Error
	if errors.As(err, &said) {
		return said.Code
	}
	return 0
}

// unsure reports whether messages may have arrived although there is an error.
func unsure(err error) bool {
	switch code(err) {
	case 0:
		return !errors.As(err, new(topicError)) && !errors.Is(err, kgo.ErrMaxBuffered)
	case kerr.RequestTimedOut.Code, kerr.NotEnoughReplicasAfterAppend.Code, kerr.NetworkException.Code, kerr.KafkaStorageError.Code:
		return true
	default:
		_, known := rules[code(err)] // UNKNOWN_SERVER_ERROR, too, may come after the batch was taken
		return !known
	}
}

// ruleOf finds the rule for a code. One at which a topic could not be created says nothing of the message,
// nor of other topics.
func ruleOf(code int16, err error) (r rule, known bool) {
	r, known = rules[code]
	if errors.Is(err, errNotCreated) && r.scope != brokers.ScopeDestination {
		return destinationOut("create the topic yourself, or grant the user Create (kafka-acls)"), true
	}
	return r, known
}

// classified gives an error its class and scope, and says what to do.
func classified(what string, err error) error {
	said := fmt.Errorf("kafka: %s: %w", what, err)
	advise := func(advice string) error { return failure.Advise(said, advice) }
	if n := code(err); n != 0 {
		r, known := ruleOf(n, err)
		switch {
		case !known || r.class == brokers.ClassRetryable:
			return brokers.Retryable(advise(r.advice))
		case r.class == brokers.ClassPermanent:
			return brokers.Permanent(advise(r.advice))
		default:
			return brokers.Unavailable(r.scope, advise(r.advice))
		}
	}
	if errors.As(err, new(topicError)) {
		return brokers.Unavailable(brokers.ScopeDestination, said)
	}
	return brokers.Unreachable(brokers.ScopeBroker, advise(unanswered(err)))
}

// unanswered says what to do about an error that is not Kafka's word; empty: that is not known.
func unanswered(err error) (advice string) {
	var (
		untrusted *tls.CertificateVerificationError
		noTLS     tls.RecordHeaderError
		refused   *net.OpError
		eof       *kgo.ErrFirstReadEOF
	)
	switch {
	case errors.As(err, &untrusted):
		return "check the address, and name the servers' certificate authority (tls.ca_file, WithTLS)"
	case errors.As(err, &noTLS):
		return "the port does not talk TLS; leave tls (WithTLS) out, or use another port"
	case errors.As(err, &eof):
		return "the server hung up at the first request: it talks TLS, or SASL, or is no Kafka"
	case errors.Is(err, kgo.ErrRecordRetries):
		return "the partition's leader does not answer; " + passes
	case errors.Is(err, io.EOF):
		return "the server hung up; see its log"
	case errors.As(err, &refused) && refused.Op == "dial", errors.Is(err, context.DeadlineExceeded):
		return "check that the servers run, and that the addresses that they advertise can be reached"
	default:
		return ""
	}
}
