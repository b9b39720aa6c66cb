package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

const (
	// maxHeaderBytes of what comes from a message: servers take 8 KiB of headers, as a rule. Id, type,
	// key and destination have at most 512 bytes each, and fit.
	maxHeaderBytes = 6 << 10
	headerOverhead = len(": \r\n")

	fieldPrefix = "fanout-"
	// likelyHeaders are those of nearly every message.
	likelyHeaders = 12
)

var userAgent = []string{"fanout-webhook/1"}

// request makes the request of a message. Optional fields that do not fit are left out, and named. An
// error is final for the message.
func (b *Broker) request(ctx context.Context, m *brokers.Message) (request *http.Request, omitted []string, err error) {
	if most := b.settings.MaxMessageBytes; most > 0 && len(m.Payload) > most {
		return nil, nil, fmt.Errorf("the payload has %d bytes, the endpoint takes %d (max_message_bytes, WithMaxMessageBytes)", len(m.Payload), most)
	}
	id, timestamp := escaped(m.ID), strconv.FormatInt(time.Now().Unix(), 10) // every id of the outbox goes as it is
	h := headers{Header: make(http.Header, likelyHeaders)}
	h.Header["User-Agent"] = userAgent
	h.Header[HeaderID], h.Header[HeaderTimestamp] = []string{id}, []string{timestamp}
	h.Header[HeaderSignature] = []string{signatures(b.keys, id, timestamp, m.Payload)}
	if omitted, err = h.describe(m); err != nil {
		return nil, nil, err
	}
	if user := b.url.User; user != nil {
		password, _ := user.Password()
		h.Header["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))}
	}
	request = &http.Request{
		Method: http.MethodPost, URL: b.url, Host: b.url.Host, Header: h.Header, ContentLength: int64(len(m.Payload)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	request.Body, request.GetBody = again(m.Payload, b.settings.RequestTimeout/4)
	return request.WithContext(ctx), omitted, nil
}

// mostRewinds bounds how often a request is sent again: a GOAWAY costs two rewinds, that of the
// stream and that of the next connection.
const mostRewinds = 16

var errNotProcessed = errors.New("the endpoint ends each connection or stream without processing the request (GOAWAY, REFUSED_STREAM)")

// again is the body of a request, and what the transport rewinds it with where it sends the request
// again: with HTTP/2 where the endpoint says that it has not processed it, as when it ends a
// connection that has had its number of requests (GOAWAY), or resets a stream with REFUSED_STREAM,
// or with PROTOCOL_ERROR as some do in its place; and with HTTP/1.1 where nothing was written. It
// does not where a POST may have arrived. From the second reset of a stream on it pauses, for 1 s,
// 2 s, 4 s: patience bounds that, so that the error is the endpoint's word, and not that it gave no
// answer in time.
func again(payload []byte, patience time.Duration) (first io.ReadCloser, next func() (io.ReadCloser, error)) {
	rewinds, end := 0, time.Now().Add(patience)
	return io.NopCloser(bytes.NewReader(payload)), func() (io.ReadCloser, error) {
		if rewinds++; rewinds > mostRewinds || time.Now().After(end) {
			return nil, errNotProcessed
		}
		return io.NopCloser(bytes.NewReader(payload)), nil
	}
}

// headers counts what comes from a message.
type headers struct {
	http.Header

	size int
}

// add adds a header, unless there is no room for it.
func (h *headers) add(name, value string) bool {
	size := len(name) + len(value) + headerOverhead
	if h.size+size > maxHeaderBytes {
		return false
	}
	h.size += size
	h.Header[textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
	return true
}

// describe adds what is known of a message beside its payload. What is optional and has no place is
// named.
func (h *headers) describe(m *brokers.Message) (omitted []string, err error) {
	contentType := m.ContentType
	if contentType == "" || escaped(contentType) != contentType {
		contentType = brokers.DefaultContentType
	}
	h.Header["Content-Type"] = []string{contentType}
	h.add(fieldPrefix+"destination", escaped(m.Destination))
	for name, value := range m.Fields {
		header, text := headerName(name), escaped(value)
		switch name {
		case brokers.FieldID, brokers.FieldContentType: // they have headers of their own
			continue
		case brokers.FieldTraceParent, brokers.FieldTraceState:
			header = name
			if text != value {
				header = ""
			}
		}
		switch {
		case header == "" || h.Get(header) != "": // taken by another attribute
			omitted = append(omitted, name)
		case h.add(header, text):
		case name == brokers.FieldType || name == brokers.FieldOrderingKey:
			return nil, fmt.Errorf("the %s has %d bytes, which do not fit into headers of %d", name, len(value), maxHeaderBytes)
		default:
			omitted = append(omitted, name)
		}
	}
	return omitted, nil
}

// headerName is the header of a flat field; empty where it cannot have one. Many servers drop headers
// with "_" in their names without a word.
func headerName(field string) string {
	for i := range len(field) {
		if c := field[i]; ('a' > c || c > 'z') && ('0' > c || c > '9') && c != '-' && c != '_' {
			return ""
		}
	}
	return fieldPrefix + strings.ReplaceAll(field, "_", "-")
}

// escaped is a text as the value of a header; url.PathUnescape gives it back.
func escaped(text string) string {
	plain := func(i int) bool {
		c := text[i]
		return c > ' ' && c <= '~' && c != '%' || c == ' ' && i > 0 && i < len(text)-1
	}
	first := 0
	for first < len(text) && plain(first) {
		first++
	}
	if first == len(text) {
		return text
	}
	const hexadecimal = "0123456789ABCDEF"
	out := append(make([]byte, 0, 2*len(text)), text[:first]...)
	for i := first; i < len(text); i++ {
		if plain(i) {
			out = append(out, text[i])
		} else {
			out = append(out, '%', hexadecimal[text[i]>>4], hexadecimal[text[i]&15])
		}
	}
	return string(out)
}
