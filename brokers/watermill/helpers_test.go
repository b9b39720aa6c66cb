package watermill_test

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/gorm-fanout/fanout/brokers"
)

func numbered(destination, key string, n int) brokers.Message {
	return brokers.Message{
		ID: fmt.Sprintf("id-%d", n), Destination: destination, Type: "T.v1", OrderingKey: key, ContentType: brokers.DefaultContentType,
		Payload: fmt.Appendf(nil, "%d", n),
	}
}

// many makes n messages of as many keys by turns; with keys 0 they have none.
func many(n, keys int) []brokers.Message {
	msgs := make([]brokers.Message, n)
	for i := range msgs {
		msgs[i] = numbered("orders", "", i)
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
		count[class(result.Err)]++
	}
	return count
}

// publisher is a message.Publisher made of a function. It notes what was handed to it, in order.
type publisher struct {
	publish func(topic string, m *message.Message) error // nil = all succeed
	close   func() error                                 // nil = succeeds

	mu     sync.Mutex
	topics []string
	sent   []*message.Message
	closed int
}

func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		p.mu.Lock()
		p.topics, p.sent = append(p.topics, topic), append(p.sent, m)
		p.mu.Unlock()
		if p.publish != nil {
			if err := p.publish(topic, m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *publisher) Close() error {
	p.mu.Lock()
	p.closed++
	p.mu.Unlock()
	if p.close != nil {
		return p.close()
	}
	return nil
}

// ids are those of the messages that were handed to the publisher, in order.
func (p *publisher) ids() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for _, m := range p.sent {
		ids = append(ids, m.UUID)
	}
	return strings.Join(ids, " ")
}
