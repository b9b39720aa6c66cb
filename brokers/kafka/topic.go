package kafka

import (
	"fmt"
	"strings"
)

// maxTopicBytes is the longest name that Kafka takes for a topic.
const maxTopicBytes = 249

// TopicName is the topic of a destination: "." for each "::", so that ordering::order is
// ordering.order.
func TopicName(destination string) string { return strings.ReplaceAll(destination, "::", ".") }

// topicError is the error of a destination that has no topic.
type topicError struct{ reason string }

func (e topicError) Error() string { return e.reason }

// checkTopic says why a name cannot be that of a topic
// (org.apache.kafka.common.internals.Topic.validate).
func checkTopic(topic string) error {
	const advice = "; choose another destination, or in Go another topic for it (Settings.Topic)"
	switch {
	case topic == "" || topic == "." || topic == "..":
		return topicError{fmt.Sprintf("%q is no name of a topic%s", topic, advice)}
	case len(topic) > maxTopicBytes:
		return topicError{fmt.Sprintf("the name of the topic has %d bytes, Kafka takes %d%s", len(topic), maxTopicBytes, advice)}
	}
	for i := range len(topic) {
		if c := topic[i]; ('a' > c || c > 'z') && ('A' > c || c > 'Z') && ('0' > c || c > '9') && c != '.' && c != '_' && c != '-' {
			return topicError{fmt.Sprintf("the topic %q has %q; Kafka takes letters, digits, '.', '_' and '-'%s", topic, topic[i:i+1], advice)}
		}
	}
	return nil
}
