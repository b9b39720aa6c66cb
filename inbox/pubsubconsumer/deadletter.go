package pubsubconsumer

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/inbox/internal/session"
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

// deadLetter publishes a message to the topic of dead letters.
func (c *Consumer) deadLetter(ctx context.Context, e *session.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	letter := c.letter(e, e.First().(*delivery).message.OrderingKey) //nolint:forcetypeassert // the only kind there is
	err := c.publish(ctx, letter)
	if status.Code(err) == codes.InvalidArgument {
		// The message was as large as Pub/Sub allows: without anything added it still is.
		letter.Attributes = e.Message.Attributes
		err = c.publish(ctx, letter)
	}
	if err != nil {
		return fmt.Errorf("publish to %s: %w", c.options.deadLetters, err)
	}
	return nil
}

func (c *Consumer) publish(ctx context.Context, letter *pubsubpb.PubsubMessage) error {
	_, err := c.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: c.options.deadLetters, Messages: []*pubsubpb.PubsubMessage{letter}})
	return err
}

// letter is a message as it was, with what is known of its end. The ordering key stays: the dead
// letters of a key are published one after the other, so that who sends them again can do so in
// order.
func (c *Consumer) letter(e *session.Entry, key string) *pubsubpb.PubsubMessage {
	attributes := maps.Clone(e.Message.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	for _, added := range []struct{ name, value string }{ // the first ones matter most, where there is little room
		{AttributeReason, e.Why.Error()},
		{AttributeMessageID, e.ID},
		{AttributeSubscription, c.subscription},
		{AttributeConsumer, c.options.consumer},
		{AttributeAttempts, strconv.Itoa(e.Past.Failures)},
	} {
		if _, found := attributes[added.name]; found || len(attributes) < maxAttributes {
			attributes[added.name] = shortened(added.value)
		}
	}
	return &pubsubpb.PubsubMessage{Data: e.Message.Payload, Attributes: attributes, OrderingKey: key}
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
