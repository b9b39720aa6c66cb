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
func (b *Broker) encode(m *brokers.Message, topic string, room *page) (record *kgo.Record, size int, omitted []string, err error) {
	if most := b.options.maxBytes - headerRoom; len(m.Payload) > most {
		return nil, 0, nil, fmt.Errorf("the payload has %d bytes, at most %d are allowed (max.message.bytes less %d for headers); "+
			"raise max.message.bytes of the topic, and tell it (max_message_bytes)", len(m.Payload), most, headerRoom)
	}
	record = room.record()
	record.Topic, record.Value, record.Headers = topic, m.Payload, room.list(mostFields+len(m.Attributes))
	size = len(m.Payload) + recordOverhead
	if m.OrderingKey != "" {
		record.Key = room.text(m.OrderingKey)
		size += len(m.OrderingKey)
	}
	required := 2 // id and type
	for name, value := range m.Fields {
		cost := len(name) + len(value) + headerOverhead
		if size+cost > b.options.maxBytes-batchOverhead {
			if required > 0 {
				return nil, 0, nil, fmt.Errorf("the %s has %d bytes, which do not fit into the limit of %d", name, len(value), b.options.maxBytes)
			}
			omitted = append(omitted, name)
			continue
		}
		required--
		size += cost
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: room.text(value)})
	}
	return record, size, omitted, nil
}

// mostFields are those of a message beside its attributes.
const mostFields = 5

// A page is the memory of the records of a round, in few pieces instead of many.
type page struct {
	records []kgo.Record
	headers []kgo.RecordHeader
	texts   []byte
}

// pageTexts is the size of a piece for texts, of which a message has 100 to 300 bytes.
const pageTexts = 16 << 10

// newPage has room for n records.
func newPage(n int) *page { return &page{records: make([]kgo.Record, 0, n)} }

func (p *page) record() *kgo.Record {
	if len(p.records) == cap(p.records) { // some of a round could not be encoded
		p.records = make([]kgo.Record, 0, cap(p.records))
	}
	p.records = p.records[:len(p.records)+1]
	return &p.records[len(p.records)-1]
}

// list is an empty list with room for n headers.
func (p *page) list(n int) []kgo.RecordHeader {
	if cap(p.headers)-len(p.headers) < n {
		p.headers = make([]kgo.RecordHeader, 0, max(n, min(cap(p.records), 100)*mostFields))
	}
	from := len(p.headers)
	p.headers = p.headers[:from+n]
	return p.headers[from : from : from+n]
}

func (p *page) text(s string) []byte {
	if cap(p.texts)-len(p.texts) < len(s) {
		p.texts = make([]byte, 0, max(len(s), min(pageTexts, cap(p.records)*256)))
	}
	from := len(p.texts)
	p.texts = append(p.texts, s...)
	return p.texts[from:len(p.texts):len(p.texts)]
}
