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

// TopicID is the default name of a destination's topic: "::", which Pub/Sub does not allow, becomes
// ".". So "ordering::order" is published to the topic "ordering.order". The id of a topic has 3 to
// 255 letters, digits and -_.~+%, begins with a letter, and not with "goog". A destination that is
// shorter, such as "hr", or has other characters needs [Settings.Topic]; until then it is unavailable,
// and its messages wait.
func TopicID(destination string) string { return strings.ReplaceAll(destination, "::", ".") }

// legalTopic is a full name. Projects are not looked at closely: there are old ones, and those of a
// domain ("example.com:p").
var legalTopic = regexp.MustCompile(`^projects/[a-z0-9][a-z0-9.:\-]*/topics/[a-zA-Z][a-zA-Z0-9\-_.~+%]{2,254}$`)

// topicFor returns the full name of a destination's topic. What is not legal is found here, as
// Pub/Sub's answer to it is the same as to an illegal message.
func (b *Broker) topicFor(destination string) (string, error) {
	topic := b.options.topic(destination)
	if !strings.HasPrefix(topic, "projects/") {
		topic = topicName(b.client.Project(), topic)
	}
	_, id, _ := strings.Cut(topic, "/topics/")
	if !legalTopic.MatchString(topic) || strings.HasPrefix(id, "goog") {
		return "", fmt.Errorf("%q is not a legal topic: its id has 3 to 255 letters, digits and -_.~+%%, and begins with a letter but not "+
			"with goog; its full name is projects/<project>/topics/<id>: map the destination with Settings.Topic", topic)
	}
	return topic, nil
}

func topicName(project, id string) string { return "projects/" + project + "/topics/" + id }

// createTopic creates a topic, or finds that it was created meanwhile.
func (b *Broker) createTopic(ctx context.Context, topic string) error {
	_, err := b.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}, withoutRetry)
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}
