package gcppubsub

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TopicID is the default name of a destination's topic: "::", which Pub/Sub does not allow, becomes ".". So "ordering::order" is
// published to the topic "ordering.order".
func TopicID(destination string) string { return strings.ReplaceAll(destination, "::", ".") }

var legalID = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9\-_.~+%]{2,254}$`)

// topicFor returns the full name of a destination's topic.
func (b *Broker) topicFor(destination string) (string, error) {
	topic := b.options.topic(destination)
	if strings.HasPrefix(topic, "projects/") {
		return topic, nil
	}
	if !legalID.MatchString(topic) || strings.HasPrefix(topic, "goog") {
		return "", fmt.Errorf("%q is not a legal topic id (3 to 255 letters, digits and -_.~+%%, beginning with a letter but not "+
			"with goog): map the destination with WithTopic", topic)
	}
	return b.topicName(topic), nil
}

func (b *Broker) topicName(id string) string {
	return "projects/" + b.client.Project() + "/topics/" + id
}

// createTopic creates a topic, or finds that somebody else just did.
func (b *Broker) createTopic(ctx context.Context, topic string) error {
	_, err := b.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}, withoutRetry)
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}
