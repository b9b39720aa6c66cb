package signature

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

const (
	versionText    = "fanout-v1"
	versionHMAC    = "v1"
	versionEd25519 = "v1a"

	timePrefix = "t="

	// likelyText and likelyValue have room for what is signed, and for the field of one key or two, of
	// nearly every message.
	likelyText, likelyValue = 384, 256
)

// Sign gives a message the flat field signature, with a signature of each key that can sign, in the order
// in which they were added; see [Keys.CanSign]. It is the first of the attributes, in a new slice, since
// brokers have limits for their number; one that the message has already is replaced. at is when the
// message is sent. Without a key that can sign, the message stays as it is.
func (k *Keys) Sign(m *brokers.Message, at time.Time) {
	s := statement{
		at: max(at.Unix(), 0), id: m.ID, kind: m.Type, destination: m.Destination, digest: sha256.Sum256(m.Payload),
	}
	value := strconv.AppendInt(append(make([]byte, 0, likelyValue), timePrefix...), s.at, 10)
	length := len(value)
	text := make([]byte, 0, likelyText)
	for i := range k.list {
		key := &k.list[i]
		if !key.signs() {
			continue
		}
		text = s.append(text[:0], key.id)
		value = append(value, ' ')
		value = append(value, key.version...)
		value = append(value, ',')
		value = append(value, key.id...)
		value = append(value, ',')
		value = base64.StdEncoding.AppendEncode(value, key.sign(text))
	}
	if len(value) == length {
		return
	}
	attributes := append(make([]brokers.Attribute, 0, 1+len(m.Attributes)), brokers.Attribute{Name: brokers.FieldSignature, Value: string(value)})
	for _, a := range m.Attributes {
		if a.Name != brokers.FieldSignature {
			attributes = append(attributes, a)
		}
	}
	m.Attributes = attributes
}

// A statement is what is signed, but for the id of the key.
type statement struct {
	at                    int64 // seconds since 1970
	id, kind, destination string
	digest                [sha256.Size]byte // of the payload
}

// append adds the text that a key signs: its form is in the package's documentation.
func (s *statement) append(text []byte, keyID string) []byte {
	var at [20]byte
	var digest [2 * sha256.Size]byte
	text = append(append(text, versionText...), '\n')
	text = line(text, keyID)
	text = line(text, strconv.AppendInt(at[:0], s.at, 10))
	text = line(text, s.id)
	text = line(text, s.kind)
	text = line(text, s.destination)
	hex.Encode(digest[:], s.digest[:])
	return line(text, digest[:])
}

func line[T string | []byte](text []byte, value T) []byte {
	text = strconv.AppendInt(text, int64(len(value)), 10)
	text = append(text, ':')
	text = append(text, value...)
	return append(text, '\n')
}
