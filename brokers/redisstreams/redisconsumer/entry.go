package redisconsumer

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// dataField is the field of an entry that holds the payload; a contract with the publisher.
const dataField = "data"

// errNoData is what is wrong with an entry that no Fanout has written.
var errNoData = errors.New("redisconsumer: the entry has no field \"data\", which holds the payload: check which producer writes to this stream")

// An entryID is the id of an entry: milliseconds of the server's clock and a number within them.
type entryID struct{ ms, seq uint64 }

func parseID(text string) (entryID, error) {
	ms, seq, ok := strings.Cut(text, "-")
	var (
		id         entryID
		err1, err2 error
	)
	id.ms, err1 = strconv.ParseUint(ms, 10, 64)
	id.seq, err2 = strconv.ParseUint(seq, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return entryID{}, fmt.Errorf("redisconsumer: %q is not the id of an entry", text)
	}
	return id, nil
}

func (id entryID) String() string {
	return strconv.FormatUint(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

func (id entryID) before(other entryID) bool { return id.compare(other) < 0 }

func (id entryID) compare(other entryID) int {
	return cmp.Or(cmp.Compare(id.ms, other.ms), cmp.Compare(id.seq, other.seq))
}

// next is the smallest id above.
func (id entryID) next() entryID {
	if id.seq++; id.seq == 0 {
		id.ms++
	}
	return id
}

// newDelivery is that of an entry that was delivered for the count-th time.
func (r *run) newDelivery(f *feed, position string, count int64, fields map[string]string) (*delivery, error) {
	id, err := parseID(position)
	if err != nil {
		return nil, err
	}
	e := &consumer.Entry{ID: f.name + " " + position, Scope: f.source, Low: f.primary != nil}
	e.Message, e.Broken = r.message(f.stream, id, count, fields)
	return &delivery{run: r, feed: f, entry: e, id: id, position: position, count: count, bytes: int64(consumer.AttributesBytes(fields))}, nil
}

// message reads the fields of an entry. The message is never nil: of one that cannot be read it holds
// what there is.
func (c *Consumer) message(st *stream, id entryID, count int64, fields map[string]string) (*inbox.Message, error) {
	raw := &inbox.RawMessage{Source: st.source, Position: id.String(), Published: time.UnixMilli(int64(min(id.ms, 1<<62)))}
	raw.Attributes = make(map[string]string, len(fields))
	for name, value := range fields {
		if name == dataField {
			raw.Payload = []byte(value)
		} else {
			raw.Attributes[name] = value
		}
	}
	raw.OrderingKey = raw.Attributes[inbox.FieldOrderingKey]
	m, err := consumer.Read(&c.config.ConsumerConfig, raw, raw.Position)
	m.Deliveries = int(count)
	var unread *envelope.DecodeError
	if raw.Payload == nil && errors.As(err, &unread) {
		err = errNoData
	}
	return m, err
}
