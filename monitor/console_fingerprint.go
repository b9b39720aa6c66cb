package monitor

import (
	"github.com/gorm-fanout/fanout/internal/fingerprint"
	"github.com/gorm-fanout/fanout/outbox"
)

// Fingerprint is the same for errors that are the same but for what differs from message to
// message: 12 hexadecimal digits of a hash over the broker, the error's class, and its message, in
// which quoted parts, addresses, ids and numbers are replaced. A nil error is one with no class and
// no message. It may change from version to version; nothing stores it. Relays log it.
func Fingerprint(broker string, e *outbox.LastError) string {
	if e == nil {
		e = &outbox.LastError{}
	}
	return fingerprint.Of(broker, e.Class, e.Message)
}
