package envelope

import (
	"cmp"
	"strings"
)

// Digits of the two numbers of a sequence id in a CloudEvent: as many as an int64 can have, and as
// many as the events of one transaction.
const (
	sequenceVersionDigits = 19
	sequenceNumberDigits  = 10
)

// paddedSequence is a sequence id as the attribute sequence of a CloudEvent, whose order must be
// that of its text: "7.1" is "0000000000000000007.0000000001". What is no sequence id of ours stays
// as it is. Source:
// https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/sequence.md.
func paddedSequence(id string) string {
	version, number, ok := splitSequence(id)
	if !ok {
		return id
	}
	b := make([]byte, 0, sequenceVersionDigits+1+sequenceNumberDigits)
	b = appendPadded(b, version, sequenceVersionDigits)
	b = append(b, '.')
	return string(appendPadded(b, number, sequenceNumberDigits))
}

func appendPadded(b []byte, digits string, width int) []byte {
	for range width - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

// plainSequence is the reverse: the sequence id of an attribute sequence, padded or not.
func plainSequence(attribute string) string {
	version, number, ok := splitSequence(attribute)
	if !ok {
		return attribute
	}
	return cmp.Or(version, "0") + "." + cmp.Or(number, "0")
}

// splitSequence takes a sequence id apart, without leading zeros: zero is "".
func splitSequence(id string) (version, number string, ok bool) {
	version, number, ok = strings.Cut(id, ".")
	if !ok || version == "" || number == "" || !containsOnly(version, isDigit) || !containsOnly(number, isDigit) {
		return "", "", false
	}
	return strings.TrimLeft(version, "0"), strings.TrimLeft(number, "0"), true
}

// CompareSequence compares the sequence ids of two messages, as [cmp.Compare] does: below 0 where a
// comes first. It takes both forms, that of domain.sequence_id ("7.1") and the padded one of a
// CloudEvent's attribute sequence, and compares their numbers. Other producers' sequences, which
// are not of these forms, come after ours and are compared as texts, as the CloudEvents extension
// wants.
//
// Sequence ids tell which of two events of one aggregate came first. Where the aggregate has no version,
// or one that has not moved, its events have none; the empty text comes after ours, too.
func CompareSequence(a, b string) int {
	versionA, numberA, oursA := splitSequence(a)
	versionB, numberB, oursB := splitSequence(b)
	switch {
	case oursA && oursB:
		return cmp.Or(compareDigits(versionA, versionB), compareDigits(numberA, numberB))
	case oursA:
		return -1
	case oursB:
		return 1
	default:
		return strings.Compare(a, b)
	}
}

// compareDigits compares numbers without leading zeros, of any size.
func compareDigits(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
