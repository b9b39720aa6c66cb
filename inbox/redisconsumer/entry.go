package redisconsumer

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
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

// An item is a claimed entry.
type item struct {
	stream *stream
	id     entryID
	// position is the id as text.
	position string
	// count is the delivery count under which it is ours; with the consumer's name it is the token
	// that is checked before anything is done to the entry.
	count   int64
	message *inbox.Message
	// bytes of its fields, and those that are counted for the stream.
	bytes, counted int64
	held           *atomic.Int64
	key            string // of its queue
	past           inbox.Past

	// abandoned is why it goes to the dead letters; nil for most.
	abandoned error
	// failed forwards, and failed reloads of its payload.
	forwards, reloads int

	queue *queue    // within the queue
	due   time.Time // not before then; zero: at once

	state    itemState
	unloaded bool // its payload is not in memory
	gone     bool // from the stream: nothing is left to renew
	lent     bool // to whoever wants it, while an isolated message is handled alone
	cancel   func(error)
}

type itemState int

const (
	waiting itemState = iota
	running           // its handler is, or its dead letter is being written
	handled           // to be acknowledged
	lost              // to another consumer
)

// newItem makes an item of an entry that was delivered for the count-th time.
func (c *Consumer) newItem(st *stream, position string, count int64, fields map[string]string) (*item, error) {
	id, err := parseID(position)
	if err != nil {
		return nil, err
	}
	it := &item{stream: st, id: id, position: position, count: count}
	for name, value := range fields {
		it.bytes += int64(len(name) + len(value))
	}
	it.message, it.abandoned = decode(fields)
	m := it.message
	m.Consumer, m.Source, m.Position, m.Deliveries = c.consumer, st.source, position, int(count)
	m.Published = time.UnixMilli(int64(min(id.ms, 1<<62)))
	if m.OrderingKey != "" { // another source may use the same keys, and is not to hold these up
		it.key = m.Source + "\x00" + m.OrderingKey
	}
	return it, nil
}

// decode reads the fields of an entry. The message is never nil: of one that cannot be read it
// holds what there is.
func decode(fields map[string]string) (*inbox.Message, error) {
	payload, ok := fields[dataField]
	attributes := make(map[string]string, len(fields))
	for name, value := range fields {
		if name != dataField {
			attributes[name] = value
		}
	}
	err := errNoData
	if ok {
		var m *inbox.Message
		if m, err = inbox.Decode([]byte(payload), attributes); err == nil {
			return m, nil
		}
	}
	m := &inbox.Message{ID: attributes["id"], Type: attributes["type"], Payload: []byte(payload), Attributes: attributes}
	if m.ID != "" {
		m.Key = inbox.KeyOf("", m.ID)
	}
	return m, err
}
