package testservers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// The requests that are put to a Kafka (https://kafka.apache.org/protocol), since this module has no
// client: which versions of requests it knows, which a server answers before a login, and who the
// members of its cluster are.
const (
	kafkaAPIVersions, kafkaAPIVersionsVersion = 18, 3
	kafkaMetadata, kafkaMetadataVersion       = 3, 9
)

// probeKafka asks the first server that answers of those of an address list for its version.
func probeKafka(ctx context.Context, servers string) (version string, err error) {
	var failures []error
	for address := range strings.SplitSeq(servers, ",") {
		body := []byte{7}
		body = append(body, "fanout"...)
		body = append(body, 2, '1', 0) // its version; no further fields
		answer, err := askKafka(ctx, strings.TrimSpace(address), kafkaAPIVersions, kafkaAPIVersionsVersion, body)
		if err == nil {
			return kafkaRelease(answer), nil
		}
		failures = append(failures, err)
	}
	return "", errors.Join(failures...)
}

// kafkaReleases by the first level of metadata.version that they have, the latest first.
var kafkaReleases = []struct {
	level int16
	name  string
}{{28, "later than 4.1"}, {26, "4.1"}, {22, "4.0"}, {21, "3.9"}, {20, "3.8"}, {15, "3.7"}, {12, "3.6"}, {1, "3"}}

// kafkaRelease reads the answer to the question for versions: no server says its own, but the level of
// its metadata does.
func kafkaRelease(answer *kafkaAnswer) string {
	const finalizedFeatures = 2
	answer.int16() // the error
	for range answer.count() {
		answer.skip(6) // a request, its lowest and its highest version
		answer.fields(nil)
	}
	answer.skip(4) // throttled for
	level := int16(0)
	answer.fields(func(tag uint64, value *kafkaAnswer) {
		if tag != finalizedFeatures {
			return
		}
		for range value.count() {
			name, highest := value.text(), value.int16()
			value.skip(2) // the lowest
			value.fields(nil)
			if name == "metadata.version" {
				level = highest
			}
		}
	})
	for _, release := range kafkaReleases {
		if level >= release.level {
			return release.name
		}
	}
	return "unknown" // one that speaks the protocol
}

// kafkaMembers asks a server for the id of its cluster, and for the nodes that clients can use: their
// addresses by their ids.
func kafkaMembers(ctx context.Context, address string) (cluster string, members map[int32]string, err error) {
	// No topics (an empty list has length 1), no creation of any, no rights, no further fields.
	answer, err := askKafka(ctx, address, kafkaMetadata, kafkaMetadataVersion, []byte{1, 0, 0, 0, 0})
	if err != nil {
		return "", nil, err
	}
	answer.fields(nil) // of the header
	answer.skip(4)     // throttled for
	members = map[int32]string{}
	for range answer.count() {
		id, host, port := answer.int32(), answer.text(), answer.int32()
		members[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
		answer.text() // the rack
		answer.fields(nil)
	}
	cluster = answer.text()
	return cluster, members, answer.err
}

// askKafka puts a request to a server and returns the answer without the number of the request.
func askKafka(ctx context.Context, address string, key, version uint16, body []byte) (*kafkaAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	request := binary.BigEndian.AppendUint16(make([]byte, 4), key)
	request = binary.BigEndian.AppendUint16(request, version)
	request = append(request, 0, 0, 0, 1) // its number
	request = append(request, 0, 0)       // an empty name of the client
	request = append(append(request, 0), body...)
	binary.BigEndian.PutUint32(request, uint32(len(request)-4)) //nolint:gosec // a short one
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	const longest = 1 << 20
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("the server does not answer as Kafka does: %w", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > longest {
		return nil, errors.New("the server does not answer as Kafka does")
	}
	answer := make([]byte, n)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, fmt.Errorf("the server does not answer as Kafka does: %w", err)
	}
	return &kafkaAnswer{rest: answer[4:]}, nil
}

// kafkaAnswer is read from its beginning. What is too short reads as zeros, and leaves an error.
type kafkaAnswer struct {
	rest []byte
	err  error
}

func (a *kafkaAnswer) skip(n int) []byte {
	if n < 0 || n > len(a.rest) {
		a.err, a.rest = io.ErrUnexpectedEOF, nil
		return make([]byte, max(0, min(n, 8)))
	}
	taken := a.rest[:n]
	a.rest = a.rest[n:]
	return taken
}

func (a *kafkaAnswer) int16() int16 { return int16(binary.BigEndian.Uint16(a.skip(2))) } //nolint:gosec // that is how it is sent

func (a *kafkaAnswer) int32() int32 { return int32(binary.BigEndian.Uint32(a.skip(4))) } //nolint:gosec // so is this

func (a *kafkaAnswer) uint() uint64 {
	value, n := binary.Uvarint(a.rest)
	if n <= 0 {
		a.skip(-1)
		return 0
	}
	a.skip(n)
	return value
}

// count is the length of a list or text, sent as one more, so that none at all is 0.
func (a *kafkaAnswer) count() int { return a.length(max(a.uint(), 1) - 1) }

// length is one that an answer can have.
func (a *kafkaAnswer) length(n uint64) int {
	if n > uint64(len(a.rest)) { // each item has a byte at least
		a.skip(-1)
		return 0
	}
	return int(n) //nolint:gosec // bounded by that
}

func (a *kafkaAnswer) text() string { return string(a.skip(a.count())) }

// fields reads the optional fields of what was read last.
func (a *kafkaAnswer) fields(each func(tag uint64, value *kafkaAnswer)) {
	for n := a.uint(); n > 0 && a.err == nil; n-- {
		tag := a.uint()
		value := &kafkaAnswer{rest: a.skip(a.length(a.uint()))}
		if each != nil {
			each(tag, value)
			a.err = errors.Join(a.err, value.err)
		}
	}
}
