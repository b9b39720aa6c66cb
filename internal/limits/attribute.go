package limits

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MinToken is the length that a token of the monitor must have at least, in bytes: it has to withstand
// guessing.
const MinToken = 16

// The most bytes that the name and the value of a flat field have that an application sets: what Google Cloud
// Pub/Sub takes, which has the lowest limits.
const (
	MaxAttributeNameBytes  = 256
	MaxAttributeValueBytes = 1024
)

// Flat fields of messages that are no envelope but the data alone, in an encoding of its own: what a consumer else reads
// in the envelope.
const (
	FieldTime        = "time"        // headers.time
	FieldSequenceID  = "sequence_id" // domain.sequence_id
	FieldCausationID = "causation_id"
)

// OwnFields are the names of the flat fields that messages have by themselves; the payload of a Redis stream
// entry is one.
var OwnFields = []string{
	"id", "type", "ordering_key", "correlation_id", "content-type", "traceparent", "tracestate", "signature", "data", FieldTime, FieldSequenceID, FieldCausationID,
}

// AttributeFlaw says why a flat field cannot go beside messages: it has the name of a field that messages have
// by themselves, or one that a broker keeps for itself, more than 256 bytes of a name or 1,024 of a value, or
// control characters, with which one header of a message could pass for two.
func AttributeFlaw(name, value string) error {
	switch {
	case name == "":
		return errors.New("has an empty name")
	case slices.Contains(OwnFields, name):
		return fmt.Errorf("%q is a field that each message has by itself: choose another name", name)
	case strings.HasPrefix(name, "goog"):
		return fmt.Errorf("%q begins with goog, which Google Cloud Pub/Sub keeps for itself", name)
	case strings.ContainsFunc(name+value, unicode.IsControl), !utf8.ValidString(name), !utf8.ValidString(value):
		return fmt.Errorf("%.40q has a control character, or is no valid UTF-8: use printable text", name)
	case len(name) > MaxAttributeNameBytes || len(value) > MaxAttributeValueBytes:
		return fmt.Errorf("%.40q is too long: names have at most %d bytes, values %d", name, MaxAttributeNameBytes, MaxAttributeValueBytes)
	}
	return nil
}
