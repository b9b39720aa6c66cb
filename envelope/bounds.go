package envelope

import (
	"fmt"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// MaxOrderingKeyBytes is the most bytes of UTF-8 that an ordering key may have, that of [Key] as well as
// the stream of an aggregate, which is its default. Applications that take a key from a client check it
// where it comes in: one that is too long is the client's mistake, and cutting it short would make
// another key of it. The other texts of a message have 512 bytes at most, too; see docs/plain-sql.md.
const MaxOrderingKeyBytes = limits.MaxOrderingKeyBytes

// boundFlaw says what is wrong with a text of at most so many bytes, nil if nothing is. The length
// comes first: what is too long is not repeated in an error.
func boundFlaw(s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("%.32q... has %d bytes, the most is %d", s, len(s), most)
	}
	return textFlaw(s)
}
