package signature

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

const (
	// mostBytes and mostSignatures bound what a sender can make a consumer read and compare.
	mostBytes      = 1024
	mostSignatures = 8
	mostTimeDigits = 12
)

// Verify checks a message as it has arrived: that one of the keys has signed its flat fields id and type,
// its payload, and the destination in which the consumer expects it, such as "ordering::order". attributes
// are the flat fields (headers, attributes; on RabbitMQ id and type are the properties message_id and type) by
// their names; payload are the bytes that arrived, before they are decoded. It returns when the message was
// signed, by the producer's clock, in whole seconds, for a consumer that refuses what is older than some time.
//
// A nil error says that the message may be believed. Otherwise the error says what is wrong, and shows
// nothing of the message but ids of keys. A message may come several times, with one id: a signature does not keep anyone
// from copying a message within its stream, so deduplicate by the id as ever. It takes one pass over the
// payload, and checks eight signatures at most, each key once.
func (k *Keys) Verify(destination string, attributes map[string]string, payload []byte) (signed time.Time, err error) {
	value, found := attributes[brokers.FieldSignature]
	switch {
	case k.len() == 0:
		return time.Time{}, errors.New("signature: there is no key to verify with: add one")
	case !found:
		return time.Time{}, fmt.Errorf("signature: the message is not signed: it has no field %q", brokers.FieldSignature)
	}
	for _, name := range [...]string{brokers.FieldID, brokers.FieldType} { // which each message has
		if attributes[name] == "" {
			return time.Time{}, fmt.Errorf("signature: the field %q is not given, which is signed: RabbitMQ has it as a property of the message", name)
		}
	}
	at, given, err := parse(value)
	if err != nil {
		return time.Time{}, fmt.Errorf("signature: the field %q cannot be read: %w", brokers.FieldSignature, err)
	}
	s := statement{
		at: at, id: attributes[brokers.FieldID], kind: attributes[brokers.FieldType], destination: destination, digest: sha256.Sum256(payload),
	}
	text := make([]byte, 0, likelyText)
	var wrong, unknown []string
	for i := range given {
		one := &given[i]
		key := k.find(one.keyID)
		if key == nil || key.version != one.version {
			unknown = append(unknown, one.version+" "+one.keyID)
			continue
		}
		text = s.append(text[:0], key.id)
		if key.verifies(text, one.signature) {
			return time.Unix(at, 0).UTC(), nil
		}
		wrong = append(wrong, key.id)
	}
	if len(wrong) > 0 {
		return time.Time{}, fmt.Errorf("signature: the signature of key %q is not that of this message in destination %q: "+
			"its id, type, time or payload was changed, it is from another destination, or the key is another one", wrong, destination)
	}
	return time.Time{}, fmt.Errorf("signature: no known key has signed the message, only %q: ask the producer for the new key", unknown)
}

// given is one signature of a message.
type given struct {
	version, keyID string
	signature      []byte
}

// parse reads the field. Signatures of other versions are passed over.
func parse(value string) (at int64, signatures []given, err error) {
	if len(value) > mostBytes {
		return 0, nil, fmt.Errorf("it has %d bytes, the most is %d", len(value), mostBytes)
	}
	parts := strings.Split(value, " ")
	if at, err = parseTime(parts[0]); err != nil {
		return 0, nil, err
	}
	if len(parts) < 2 || len(parts) > 1+mostSignatures {
		return 0, nil, fmt.Errorf("it has %d signatures, 1 to %d are read", len(parts)-1, mostSignatures)
	}
	signatures = make([]given, 0, len(parts)-1)
	for n, part := range parts[1:] {
		one, known, err := parseOne(part)
		if err != nil {
			return 0, nil, fmt.Errorf("signature %d %w", n+1, err)
		}
		if slices.ContainsFunc(signatures, func(other given) bool { return other.keyID == one.keyID }) {
			return 0, nil, fmt.Errorf("signature %d has the key id of another one, %q", n+1, one.keyID)
		}
		if known {
			signatures = append(signatures, one)
		}
	}
	if len(signatures) == 0 {
		return 0, nil, fmt.Errorf("it has no signature of version %s or %s", versionHMAC, versionEd25519)
	}
	return at, signatures, nil
}

// parseOne reads one signature. known is false for one of another version, of which nothing is read.
func parseOne(part string) (one given, known bool, err error) {
	version, rest, _ := strings.Cut(part, ",")
	switch version {
	case "":
		return given{}, false, errors.New("has no version")
	case versionHMAC, versionEd25519:
	default:
		return given{}, false, nil
	}
	id, text, found := strings.Cut(rest, ",")
	if !found || !validID(id) {
		return given{}, false, errors.New("is not a version, a key id and base64, with commas between")
	}
	signature, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // which the decoder passes over
		return given{}, false, errors.New("is not in base64")
	}
	return given{version, id, signature}, true, nil
}

// parseTime takes a time in the one form that it is written in.
func parseTime(text string) (int64, error) {
	digits, found := strings.CutPrefix(text, timePrefix)
	at, err := strconv.ParseInt(digits, 10, 64)
	if !found || err != nil || len(digits) > mostTimeDigits || strconv.FormatInt(at, 10) != digits || at < 0 {
		return 0, fmt.Errorf("it does not begin with %s and a number of seconds", timePrefix)
	}
	return at, nil
}
