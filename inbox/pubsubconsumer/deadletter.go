package pubsubconsumer

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The attributes that a dead letter has besides its own.
const (
	AttributeReason       = "dead_letter_reason"       // the last error
	AttributeConsumer     = "dead_letter_consumer"     // who abandoned it
	AttributeAttempts     = "dead_letter_attempts"     // how often it had failed
	AttributeSubscription = "dead_letter_subscription" // where it came from, in full
	AttributeMessageID    = "dead_letter_message_id"   // Pub/Sub's id of it there
)

// Pub/Sub's limits of attributes.
const (
	maxAttributes     = 100
	maxAttributeBytes = 1024
)

// publishTimeout bounds the publishing of one dead letter.
const publishTimeout = 10 * time.Second

// deadLetter publishes a message to the topic of dead letters and confirms it. Where that fails, it
// is tried again; the message stays claimed, and its key waits.
func (s *session) deadLetter(e *entry) {
	err := s.publish(s.handling, e)
	if err == nil {
		s.counts.forwarded.Add(1)
		if s.options.observer != nil {
			s.options.observer.Forwarded(s.handling, e.message, e.why)
		}
		s.confirm(e)
		return
	}
	e.past.Setbacks++
	delay := s.options.retry.Delay(e.past.Setbacks)
	log := s.logOf(e)
	log.ErrorContext(s.handling, "dead letter not published", "topic", s.options.deadLetters, "retry_in", delay, "error", err)
	s.pause(e, time.Now().Add(delay))
}

func (s *session) publish(ctx context.Context, e *entry) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	letter := s.letter(e)
	_, err := s.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: s.options.deadLetters, Messages: []*pubsubpb.PubsubMessage{letter}})
	if status.Code(err) != codes.InvalidArgument {
		return err
	}
	// The message was as large as Pub/Sub allows: without anything added it still is.
	letter.Attributes = e.message.Attributes
	_, err = s.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: s.options.deadLetters, Messages: []*pubsubpb.PubsubMessage{letter}})
	return err
}

// letter is a message as it was, with what is known of its end. The ordering key stays: the dead
// letters of a key are published one after the other, so that who sends them again can do so in
// order.
func (s *session) letter(e *entry) *pubsubpb.PubsubMessage {
	attributes := maps.Clone(e.message.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	for _, added := range []struct{ name, value string }{ // the first ones matter most, where there is little room
		{AttributeReason, e.why.Error()},
		{AttributeMessageID, e.id},
		{AttributeSubscription, s.subscription},
		{AttributeConsumer, s.options.consumer},
		{AttributeAttempts, strconv.Itoa(e.past.Failures)},
	} {
		if _, found := attributes[added.name]; found || len(attributes) < maxAttributes {
			attributes[added.name] = shortened(added.value)
		}
	}
	return &pubsubpb.PubsubMessage{Data: e.message.Payload, Attributes: attributes, OrderingKey: e.copies[0].OrderingKey}
}

// shortened is what fits an attribute, in whole characters.
func shortened(value string) string {
	value = strings.ToValidUTF8(value, "\uFFFD")
	if len(value) <= maxAttributeBytes {
		return value
	}
	end := maxAttributeBytes
	for !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}
