package pubsubconsumer

import (
	"context"
	"fmt"
	"maps"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// maxAttributes is Pub/Sub's limit for a message.
const maxAttributes = 100

// publishTimeout bounds the publishing of one dead letter.
const publishTimeout = 10 * time.Second

// deadLetter publishes a message to the topic of dead letters.
func (c *Consumer) deadLetter(ctx context.Context, e *consumer.Entry) error {
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
		return fmt.Errorf("publish to %s: %w", c.letters, err)
	}
	return nil
}

func (c *Consumer) publish(ctx context.Context, letter *pubsubpb.PubsubMessage) error {
	_, err := c.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: c.letters, Messages: []*pubsubpb.PubsubMessage{letter}})
	return err
}

// letter is a message as it was, with what is known of its end. The ordering key stays: the dead
// letters of a key are published one after the other, so that who sends them again can do so in
// order.
func (c *Consumer) letter(e *consumer.Entry, key string) *pubsubpb.PubsubMessage {
	attributes := maps.Clone(e.Message.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	for _, added := range consumer.DeadLetterAttributes(e, c.subscription) { // the first ones matter most, where there is little room
		if _, found := attributes[added.Name]; found || len(attributes) < maxAttributes {
			attributes[added.Name] = added.Value
		}
	}
	return &pubsubpb.PubsubMessage{Data: e.Message.Payload, Attributes: attributes, OrderingKey: key}
}
