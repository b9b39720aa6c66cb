// Package fingerprint tells which errors of messages have one cause. Logs, lists and commands group by it.
package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Of is the same for errors that are the same but for what differs from message to message: 12
// hexadecimal digits of a hash over the broker, the error's class, and its message, in which quoted
// parts, addresses, ids and numbers are replaced. It may change from version to version; nothing
// stores it.
func Of(broker, class, message string) string {
	hash := sha256.Sum256([]byte(broker + "\x00" + class + "\x00" + shape(message)))
	return hex.EncodeToString(hash[:6])
}

// maxBytes is how much of a message counts: where one repeats the payload, the beginning
// says what is wrong.
const maxBytes = 600

// What is replaced, in this order: a quoted part may hold an address, and an address numbers.
var (
	quoted  = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|'[^']*'")
	address = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://\S+|\S+@\S+|\[[0-9A-Fa-f:.%a-z]*:[0-9A-Fa-f:.%a-z]*\](:\d+)?|[\pL\pN_-]+(\.[\pL\pN_-]+)*:\d+`)
	// An id or a number is any word with a digit in it, with the punctuation that joins the parts
	// of one.
	number = regexp.MustCompile(`[\pL\pN_]*\d[\pL\pN_]*([-.:,+/][\pL\pN_]*\d[\pL\pN_]*|-[\pL\pN_]+)*`)
	// An id without a digit is rare, but a UUID's parts may have none.
	hexadecimal = regexp.MustCompile(`\b[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b`)
	blanks      = regexp.MustCompile(`\s+`)
)

// shape is a message without what differs.
func shape(message string) string {
	if len(message) > 2*maxBytes {
		message = message[:2*maxBytes]
	}
	message = strings.ToValidUTF8(message, "")
	message = hexadecimal.ReplaceAllLiteralString(message, "#")
	message = quoted.ReplaceAllLiteralString(message, "'…'")
	message = address.ReplaceAllLiteralString(message, "@")
	message = number.ReplaceAllLiteralString(message, "#")
	message = strings.TrimSpace(blanks.ReplaceAllLiteralString(message, " "))
	if len(message) > maxBytes {
		message = strings.ToValidUTF8(message[:maxBytes], "")
	}
	return message
}
