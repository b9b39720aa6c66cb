package nats

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/brokers"
)

const (
	// maxHeaderBytes bounds the headers of a message. They count against max_payload, and a stream
	// takes 64 KiB of them.
	maxHeaderBytes = 32 << 10
	// headerOverhead is what a header costs beside its name and value: ": " and a line end.
	headerOverhead = 4
	// ownHeaderBytes are the first line, the empty one, and the name of the message id's header.
	ownHeaderBytes = 64
)

// encode makes the NATS message of m. What headers cannot carry is left out and named. An error is
// final.
func (b *Broker) encode(m *brokers.Message, subject string) (wire *nats.Msg, omitted []string, err error) {
	if limit := b.options.maxPayload - maxHeaderBytes; len(m.Payload) > limit {
		return nil, nil, fmt.Errorf("the payload has %d bytes, at most %d are allowed (max_payload of the server less %d for headers); "+
			"raise max_payload of the servers, and tell it (max_message_bytes)", len(m.Payload), limit, maxHeaderBytes)
	}
	if m.ID == "" || !validValue(m.ID) || len(m.ID) > maxRequiredBytes {
		return nil, nil, errors.New("the message id cannot be a header: it must be 1 to 1,024 bytes without line ends and outer blanks")
	}
	if m.Type == "" || !validValue(m.Type) || len(m.Type) > maxRequiredBytes {
		return nil, nil, errors.New("the message type cannot be a header: it must be 1 to 1,024 bytes without line ends and outer blanks")
	}
	fields := 6 + len(m.Attributes)
	values := make([]string, 0, min(fields+1, 64)) // one allocation for the lists of most messages
	header := make(nats.Header, fields+1)
	add := func(name, value string) {
		if present, found := header[name]; found {
			header[name] = append(present, value)
			return
		}
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	// A stream compares ids over all of its subjects, and an id is the same on every broker: with the id
	// alone, a stream of several destinations would drop what another one has of the same event.
	id := m.ID + "@" + subject
	add(jetstream.MsgIDHeader, id)
	size := ownHeaderBytes + len(id)
	if ttl := b.options.ttlOf(m); ttl != "" {
		add(jetstream.MsgTTLHeader, ttl)
		size += len(ttl) + len(jetstream.MsgTTLHeader) + headerOverhead
	}
	for name, value := range m.Fields {
		if name == brokers.FieldOrderingKey {
			value = escaped(value)
		}
		cost := len(name) + len(value) + headerOverhead
		if size+cost > maxHeaderBytes || !validName(name) || !validValue(value) {
			omitted = append(omitted, name)
			continue
		}
		size += cost
		add(name, value)
	}
	return &nats.Msg{Subject: subject, Header: header, Data: m.Payload}, omitted, nil
}

// ttlOf is what is left of a message's time to live in seconds, rounded up: at least one. Empty: it has none.
func (o *options) ttlOf(m *brokers.Message) string {
	if !o.ttl || m.ExpiresIn <= 0 {
		return ""
	}
	return strconv.FormatInt(int64((m.ExpiresIn+time.Second-1)/time.Second), 10) + "s"
}

// maxRequiredBytes leaves room for both of the required fields, and for the ordering key.
const maxRequiredBytes = 1024

// validName reports whether a header may have the name: the client leaves out one that is no token,
// without a word, and names that begin with Nats- are instructions to the server. Status and
// Description are what clients take for the server's own words.
func validName(name string) bool {
	if name == "" || strings.EqualFold(name, "status") || strings.EqualFold(name, "description") {
		return false
	}
	if len(name) >= len(reserved) && strings.EqualFold(name[:len(reserved)], reserved) {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || !isPlain(c) && !strings.ContainsRune("!#$%&'*+.^`|~", rune(c)) {
			return false
		}
	}
	return true
}

const reserved = "nats-"

// validValue reports whether a header carries the value as it is: the client makes blanks of line
// ends, and takes away those around a value.
func validValue(value string) bool {
	if value == "" {
		return true
	}
	if strings.ContainsAny(value, "\r\n") {
		return false
	}
	blank := func(c byte) bool { return c == ' ' || c == '\t' }
	return !blank(value[0]) && !blank(value[len(value)-1])
}

// escaped is an ordering key as a header carries it. No two keys have the same.
func escaped(key string) string {
	if !strings.Contains(key, "%") && validValue(key) {
		return key
	}
	var out strings.Builder
	for i := range len(key) {
		c, outer := key[i], i == 0 || i == len(key)-1
		if c == '%' || c == '\r' || c == '\n' || outer && (c == ' ' || c == '\t') {
			out.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// shortened is a name as errors quote it.
func shortened(name string) string {
	const most = 100
	if len(name) > most {
		return name[:most] + "..."
	}
	return name
}
