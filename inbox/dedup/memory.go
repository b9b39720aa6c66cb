package dedup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// A Store remembers messages that were handled, each by consumer and key, which is the message's
// identity; see inbox.Message. Its methods are safe for concurrent use.
//
// Errors of the methods are taken for an outage. An entry must be seen by every Contains that
// begins after Add has returned.
type Store interface {
	// Contains reports whether the message was added and not purged since.
	Contains(ctx context.Context, consumer string, key uuid.UUID) (bool, error)
	// Add remembers the message; at is when it was handled, by the processor's clock. Adding it
	// again is no error, and changes nothing, or only makes it stay longer.
	Add(ctx context.Context, consumer string, key uuid.UUID, at time.Time) error
}

// A Purger forgets by age; [PurgeLoop] runs it. Stores that forget by themselves, as Redis does,
// need none.
type Purger interface {
	// PurgeOlderThan removes up to limit entries that are older than before, the oldest first where
	// that can be said, and returns how many it has removed. Fewer than limit means that none is
	// left.
	PurgeOlderThan(ctx context.Context, before time.Time, limit int) (int64, error)
}

// A Token lets one message take effect once at one consumer.
type Token struct {
	// Consumer is the name that the receiver has for itself; see inbox.Message.
	Consumer string `json:"consumer"`
	// Value is what the message carries: 1 to [MaxToken] visible ASCII characters.
	Value string `json:"value"`
}

// Limits of what stores are given, in bytes. All stores can hold that much.
const (
	MaxToken    = 128
	MaxConsumer = 256
)

// Validate reports what no store takes.
func (t Token) Validate() error {
	if err := ValidateConsumer(t.Consumer); err != nil {
		return err
	}
	if t.Value == "" {
		return errors.New("dedup: the token is empty")
	}
	if len(t.Value) > MaxToken {
		return fmt.Errorf("dedup: the token has %d bytes: use at most %d, such as a UUID", len(t.Value), MaxToken)
	}
	for i := range len(t.Value) {
		if c := t.Value[i]; c <= ' ' || c > '~' {
			return fmt.Errorf("dedup: the token %q has a character that is not visible ASCII: use a UUID, for example", t.Value)
		}
	}
	return nil
}

// ValidateConsumer reports what cannot be the name of a consumer in a store.
func ValidateConsumer(name string) error {
	switch {
	case name == "":
		return errors.New("dedup: the message has no consumer: consumers of inbox/... set it; set Message.Consumer where there is none of them")
	case len(name) > MaxConsumer:
		return fmt.Errorf("dedup: the name of the consumer has %d bytes: use at most %d", len(name), MaxConsumer)
	}
	// SQL Server ignores spaces at the end of a text that it compares, and PostgreSQL takes no text
	// that is not UTF-8.
	if strings.TrimSpace(name) != name || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("dedup: the name of the consumer, %q, has spaces around it, a control character or bytes that are not UTF-8", name)
	}
	return nil
}

// Tokens holds the tokens of messages that are in progress. Its methods are safe for concurrent use.
// Errors are taken for an outage.
//
// It must not lose anything: a message whose token is lost is never processed. It is taken for a
// copy.
type Tokens interface {
	Purger
	// Create makes tokens; at is when they were made, by the producer's clock. It has to be called
	// before the message is sent. Creating one that is there is no error.
	Create(ctx context.Context, tokens []Token, at time.Time) error
	// Exists reports whether the token was created and not removed since.
	Exists(ctx context.Context, token Token) (bool, error)
	// Remove removes tokens. Those that are not there are no error.
	Remove(ctx context.Context, tokens []Token) error
}
