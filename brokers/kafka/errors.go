package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
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

// partitionOut is the rule of what a partition's leader says of its state. It counts as an outage of the
// destination where no other partition of the topic can be used.
func partitionOut(advice string) rule {
	return rule{brokers.ClassUnavailable, brokers.ScopePartition, advice}
}

func brokerOut(advice string) rule {
	return rule{brokers.ClassUnavailable, brokers.ScopeBroker, advice}
}

// refusedBy is the rule of a refusal that may be the message's or the destination's, for which see
// [brokers.Refused].
func refusedBy(class brokers.Class, advice string) rule {
	return rule{class, brokers.ScopeDestination, advice}
}

const (
	passes     = "this passes by itself when the partition has a leader and enough replicas; see kafka-topics --describe"
	replicas   = "bring servers back, or lower min.insync.replicas of the topic"
	slow       = "the replicas do not confirm in time: see the servers' logs, and kafka-topics --describe --under-replicated-partitions"
	storage    = "a disk of the partition's leader is offline; see its log"
	producer   = "the cluster has forgotten the producer, or gave its number to another; the next call begins with a new one"
	starting   = "the cluster is starting, or has no controller; this passes by itself when most of its servers run"
	notRunning = "check that the servers run, and that the addresses that they advertise can be reached"
	quota      = "raise the user's quota, or publish more slowly"
	loginFail  = "check user, password and mechanism of SASL"
	hangsUp    = "see the log of the partition's leader, and of what is between: a proxy may have a limit"
	seeLog     = "see the log of the partition's leader"
)

// rules by error code (https://kafka.apache.org/protocol#protocol_error_codes). For every other code
// see [ruleOf].
var rules = map[int16]rule{
	kerr.UnknownTopicOrPartition.Code:    destinationOut("create the topic, or let the broker do it (create_destinations)"),
	kerr.UnknownTopicID.Code:             destinationOut(madeAnew),
	kerr.InconsistentTopicID.Code:        destinationOut(madeAnew),
	kerr.InvalidTopicException.Code:      destinationOut("choose another destination, or in Go another topic for it (Settings.Topic)"),
	kerr.TopicAuthorizationFailed.Code:   destinationOut("grant the user Write and Describe on the topic (kafka-acls)"),
	kerr.PolicyViolation.Code:            destinationOut("the cluster's policy for new topics forbids it: create the topic yourself"),
	kerr.InvalidPartitions.Code:          destinationOut("check the settings of the topics (topics)"),
	kerr.InvalidReplicationFactor.Code:   destinationOut("check the settings of the topics (topics), and the number of servers"),
	kerr.InvalidReplicaAssignment.Code:   destinationOut("check the settings of the topics (topics)"),
	kerr.InvalidConfig.Code:              destinationOut("the cluster's defaults for new topics are invalid: create the topic yourself"),
	kerr.UnsupportedCompressionType.Code: destinationOut("set compression.type of the topic to producer"),
	// Both are said of every message of the topic: each has headers, and the time of this machine.
	kerr.InvalidTimestamp.Code:            destinationOut("check this machine's clock, and message.timestamp.before.max.ms and after.max.ms of the topic"),
	kerr.UnsupportedForMessageFormat.Code: destinationOut("raise message.format.version of the topic: headers need 0.11"),

	// What a partition's leader says of its state; no message is to blame.
	kerr.UnknownServerError.Code:           partitionOut(seeLog),
	kerr.BrokerNotAvailable.Code:           partitionOut(seeLog),
	kerr.NetworkException.Code:             partitionOut(seeLog),
	kerr.RequestTimedOut.Code:              partitionOut(slow),
	kerr.NotEnoughReplicas.Code:            partitionOut(replicas),
	kerr.NotEnoughReplicasAfterAppend.Code: partitionOut(replicas),
	kerr.LeaderNotAvailable.Code:           partitionOut(passes),
	kerr.NotLeaderForPartition.Code:        partitionOut(passes),
	kerr.ReplicaNotAvailable.Code:          partitionOut(passes),
	kerr.FencedLeaderEpoch.Code:            partitionOut(passes),
	kerr.UnknownLeaderEpoch.Code:           partitionOut(passes),
	kerr.OffsetNotAvailable.Code:           partitionOut(passes),
	kerr.ListenerNotFound.Code:             partitionOut("the partition's leader does not listen where this server does: give all servers the same listeners"),
	kerr.KafkaStorageError.Code:            partitionOut(storage),
	kerr.LogDirNotFound.Code:               partitionOut(storage),
	kerr.OutOfOrderSequenceNumber.Code:     partitionOut(producer),
	kerr.InvalidProducerEpoch.Code:         partitionOut(producer),
	kerr.InvalidTxnState.Code:              partitionOut(producer),
	kerr.InvalidProducerIDMapping.Code:     partitionOut(producer),
	kerr.ConcurrentTransactions.Code:       partitionOut(producer),
	kerr.UnknownProducerID.Code:            partitionOut(producer),
	kerr.ProducerFenced.Code:               partitionOut(producer),

	kerr.ClusterAuthorizationFailed.Code: brokerOut("grant the user Write on the topics, and before Kafka 3.0 IdempotentWrite on the cluster as well (kafka-acls)"),
	kerr.SaslAuthenticationFailed.Code:   brokerOut(loginFail),
	kerr.UnsupportedSaslMechanism.Code:   brokerOut(loginFail),
	kerr.IllegalSaslState.Code:           brokerOut(loginFail),
	kerr.ThrottlingQuotaExceeded.Code:    brokerOut(quota),
	// A server that has no controller to get producers' numbers from.
	kerr.CoordinatorLoadInProgress.Code: brokerOut(starting),
	kerr.CoordinatorNotAvailable.Code:   brokerOut(starting),
	kerr.NotCoordinator.Code:            brokerOut(starting),
	kerr.NotController.Code:             brokerOut(starting),
	kerr.UnsupportedVersion.Code:        brokerOut("Kafka 0.11 or later is needed"),
	kerr.InvalidRequiredAcks.Code:       brokerOut("Kafka 0.11 or later is needed"),

	// The limit and the policy are the topic's: where they are wrong, they refuse every message.
	kerr.MessageTooLarge.Code:    refusedBy(brokers.ClassPermanent, "raise max.message.bytes of the topic, or lower max_payload_bytes"),
	kerr.RecordListTooLarge.Code: refusedBy(brokers.ClassPermanent, "raise segment.bytes of the topic, or lower max_payload_bytes"),
	kerr.InvalidRecord.Code:      refusedBy(brokers.ClassPermanent, "the topic takes no such message: see its cleanup.policy (compact needs a key)"),
	// Of each message, where the server's memory or network damages them; servers before 2.4 say it of one without a key, too.
	kerr.CorruptMessage.Code: {brokers.ClassRetryable, brokers.ScopePartition, "the message was damaged on its way, or by the partition's leader: see its log " +
		"(before Kafka 2.4 a compacted topic says so of one without a key)"},
}

const madeAnew = "the topic was deleted, and perhaps made anew: the next call asks for it by its name again"

// The rules for the rest: codes that Kafka has for other requests, and those that it will have. Kafka
// itself says of some that they pass.
var (
	restPasses  = partitionOut(seeLog)
	restRefuses = refusedBy(brokers.ClassRetryable, seeLog)
)

// ruleOf finds the rule for a code. One at which a topic could not be created says nothing of the message,
// nor of other topics.
func ruleOf(code int16, err error) rule {
	r, known := rules[code]
	switch {
	case errors.Is(err, errNotCreated) && (r.class != brokers.ClassUnavailable || r.scope != brokers.ScopeDestination):
		return destinationOut("create the topic yourself, or grant the user Create (kafka-acls)")
	case known:
		return r
	case kerr.IsRetriable(kerr.ErrorForCode(code)):
		return restPasses
	default:
		return restRefuses
	}
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
		return !errors.As(err, new(topicError)) && !errors.As(err, new(*unsent)) && !errors.Is(err, kgo.ErrMaxBuffered)
	case kerr.UnknownServerError.Code, kerr.RequestTimedOut.Code, kerr.NotEnoughReplicasAfterAppend.Code, kerr.NetworkException.Code, kerr.KafkaStorageError.Code:
		return true
	default:
		_, known := rules[code(err)]
		return !known
	}
}

// classified gives an error its class and scope, and says what to do.
func classified(what string, err error) error {
	said := fmt.Errorf("kafka: %s: %w", what, err)
	advise := func(advice string) error { return adapter.Advise(said, advice) }
	var out *serverError
	if errors.As(err, &out) {
		advice := cmp.Or(unanswered(out.why), notRunning)
		if n := code(out.why); n != 0 {
			advice = ruleOf(n, out.why).advice
		}
		return brokers.Unreachable(brokers.ScopePartition, advise(advice))
	}
	if n := code(err); n != 0 {
		r := ruleOf(n, err)
		if r.class == brokers.ClassUnavailable {
			return brokers.Unavailable(r.scope, advise(r.advice))
		}
		return brokers.Refused(r.scope, &brokers.Error{Class: r.class, Err: advise(r.advice)})
	}
	switch {
	case errors.As(err, new(topicError)):
		return brokers.Unavailable(brokers.ScopeDestination, said)
	case errors.Is(err, errUnplaced):
		return brokers.Unreachable(brokers.ScopeDestination, advise(passes))
	case errors.Is(err, errUnreached), errors.Is(err, errOvertook):
		return brokers.Unreachable(brokers.ScopePartition, advise(passes))
	case errors.Is(err, errHungUp):
		return brokers.Refused(brokers.ScopePartition, brokers.Retryable(advise(hangsUp)))
	case errors.Is(err, errThrottled):
		return brokers.Unreachable(brokers.ScopePartition, advise(quota))
	case errors.Is(err, errSlow):
		return brokers.Unreachable(brokers.ScopePartition, advise(slow))
	}
	return brokers.Unreachable(brokers.ScopeBroker, advise(unanswered(err)))
}

// ofTopic makes an outage or a refusal of a partition, which is the caller's own, one of the destination.
func ofTopic(failure error) error {
	var known *brokers.Error
	if errors.As(failure, &known) && known.Scope == brokers.ScopePartition {
		known.Scope = brokers.ScopeDestination
	}
	return failure
}

// notConnected classifies the error of a first question, which is the broker's whatever its code means
// for a topic.
func notConnected(err error) error {
	failure := classified("connect", err)
	if class, scope := brokers.Classify(failure); class == brokers.ClassUnavailable && scope == brokers.ScopeBroker {
		return failure
	}
	return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("kafka: connect: %w", err))
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
		return "check the address, and name the servers' certificate authority (tls.ca_file)"
	case errors.As(err, &noTLS):
		return "the port does not talk TLS; leave tls out, or use another port"
	case errors.As(err, &eof):
		return "the server hung up at the first request: it talks TLS, or SASL, or is no Kafka"
	case errors.Is(err, kgo.ErrRecordRetries):
		return "the partition's leader does not answer; " + passes
	case errors.Is(err, io.EOF):
		return "the server hung up; see its log"
	case errors.As(err, &refused) && refused.Op == "dial", errors.Is(err, context.DeadlineExceeded):
		return notRunning
	default:
		return ""
	}
}
