package nats

import (
	"errors"
	"fmt"
	"strings"
)

// maxSubjectBytes bounds a subject: it stands in every protocol line of a message, of which a
// server takes 4 KiB by default, and in the name of a stream that this package creates.
const maxSubjectBytes = 240

const hexDigits = "0123456789ABCDEF"

// subjectOf returns the subject of a destination: prefix, and the destination with each "::" as
// ".". Everything but ASCII letters, digits, "-" and "_" becomes "%" and two hexadecimal digits per
// byte, and so does a "::" beside which a token would be empty. No two destinations have the same
// subject: reading "." as "::" and "%XX" as its byte leads back.
func subjectOf(prefix, destination string) (string, error) {
	if destination == "" {
		return "", errors.New("the destination is empty")
	}
	if len(prefix)+len(destination) > 2*maxSubjectBytes { // "::" becomes one byte, nothing else gets shorter
		return "", tooLong(len(prefix) + len(destination))
	}
	var subject strings.Builder
	subject.WriteString(prefix)
	for i, token := 0, 0; i < len(destination); i++ {
		c := destination[i]
		switch {
		case isPlain(c):
			subject.WriteByte(c)
			token++
		case token > 0 && strings.HasPrefix(destination[i:], "::") && i+2 < len(destination):
			subject.WriteByte('.')
			token = 0
			i++
		default:
			subject.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
			token++
		}
	}
	if subject.Len() > maxSubjectBytes {
		return "", tooLong(subject.Len())
	}
	return subject.String(), nil
}

func tooLong(n int) error {
	return fmt.Errorf("the subject of the destination would have %d bytes, at most %d are allowed; use a shorter destination or prefix",
		n, maxSubjectBytes)
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// checkPrefix says why a prefix cannot begin subjects.
func checkPrefix(prefix string) error {
	token := 0
	for i := range len(prefix) {
		switch c := prefix[i]; {
		case isPlain(c):
			token++
		case c == '.' && token > 0:
			token = 0
		default:
			return fmt.Errorf("the subject prefix %q may contain ASCII letters, digits, - and _, and single dots between them or at its end",
				prefix)
		}
	}
	if len(prefix) > maxSubjectBytes/2 {
		return fmt.Errorf("the subject prefix has %d bytes, at most %d are allowed", len(prefix), maxSubjectBytes/2)
	}
	return nil
}

// streamName is the name of the stream that is created for a subject. No subject contains "+".
func streamName(subject string) string { return strings.ReplaceAll(subject, ".", "+") }
