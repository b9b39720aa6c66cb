package nats_test

import (
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/watermill"
)

func numbered(destination, key string, n int) brokers.Message {
	return brokers.Message{
		ID: fmt.Sprintf("id-%d", n), Destination: destination, Type: "T.v1", OrderingKey: key, ContentType: brokers.DefaultContentType,
		Payload: fmt.Appendf(nil, "%d", n),
	}
}

// many makes n messages of as many keys by turns; with keys 0 they have none.
func many(destination string, n, keys int) []brokers.Message {
	msgs := make([]brokers.Message, n)
	for i := range msgs {
		msgs[i] = numbered(destination, "", i)
		if keys > 0 {
			msgs[i].OrderingKey = fmt.Sprint("key-", i%keys)
		}
	}
	return msgs
}

// verdicts counts results by class and scope.
func verdicts(results []brokers.Result) map[string]int {
	count := map[string]int{}
	for _, result := range results {
		class, scope := brokers.Classify(result.Err)
		count[strings.TrimSpace(string(class)+" "+string(scope))]++
	}
	return count
}

// decoded is what a consumer makes of a message of Watermill.
func decoded(destination string, m *message.Message) brokers.Message {
	got := brokers.Message{Destination: destination, Payload: m.Payload, ContentType: brokers.DefaultContentType}
	for name, value := range m.Metadata {
		switch name {
		case brokers.FieldID:
			got.ID = value
		case brokers.FieldType:
			got.Type = value
		case brokers.FieldCorrelationID:
			got.CorrelationID = value
		case brokers.FieldContentType:
			got.ContentType = value
		case watermill.DefaultOrderingKeyMetadata:
			got.OrderingKey = value
		default:
			got.Attributes = append(got.Attributes, brokers.Attribute{Name: name, Value: value})
		}
	}
	if got.ID != m.UUID {
		got.ID = fmt.Sprintf("%s, and as the UUID %s", got.ID, m.UUID)
	}
	return got
}
