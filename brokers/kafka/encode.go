package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
)

const (
	// headerRoom is what a limit leaves for headers, key and frame of a message, so that a payload up
	// to the rest always fits: id, type, key and correlation id are 512 bytes each at most.
	headerRoom = 8 << 10
	// recordOverhead and headerOverhead are more than a record, and each of its headers, have of
	// lengths and offsets, which take 1 to 5 bytes each (KIP-98).
	recordOverhead = 64
	headerOverhead = 10
)

// encode makes the record of m, and says how many bytes it has at most. Attributes that do not fit are
// left out, and named. An error is final.
func (b *Broker) encode(m *brokers.Message, topic string) (record kgo.Record, size int, omitted []string, err error) {
	if most := b.options.maxBytes - headerRoom; len(m.Payload) > most {
		return record, 0, nil, fmt.Errorf("the payload has %d bytes, at most %d are allowed (max.message.bytes less %d for headers); "+
			"raise max.message.bytes of the topic, and tell it (max_message_bytes, WithMaxMessageBytes)", len(m.Payload), most, headerRoom)
	}
	record = kgo.Record{Topic: topic, Value: m.Payload, Headers: make([]kgo.RecordHeader, 0, 5+len(m.Attributes))}
	size = len(m.Payload) + recordOverhead
	if m.OrderingKey != "" {
		record.Key = []byte(m.OrderingKey)
		size += len(m.OrderingKey)
	}
	required := 2 // id and type
	for name, value := range m.Fields {
		cost := len(name) + len(value) + headerOverhead
		if size+cost > b.options.maxBytes-batchOverhead {
			if required > 0 {
				return record, 0, nil, fmt.Errorf("the %s has %d bytes, which do not fit into the limit of %d", name, len(value), b.options.maxBytes)
			}
			omitted = append(omitted, name)
			continue
		}
		required--
		size += cost
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return record, size, omitted, nil
}
