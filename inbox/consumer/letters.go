package consumer

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/inbox"
)

// maxAttributeBytes bounds each of them.
const maxAttributeBytes = 1024

// An Attribute is a name and a value.
type Attribute struct{ Name, Value string }

// DeadLetterAttributes are those of an abandoned message, the more important ones first; source is
// what the broker calls its source. Values are valid UTF-8, and at most 1,024 bytes long.
func DeadLetterAttributes(e *Entry, source string) []Attribute {
	all := []Attribute{
		{inbox.FieldDeadLetterReason, e.Why.Error()},
		{inbox.FieldDeadLetterPosition, e.Message.Position},
		{inbox.FieldDeadLetterSource, source},
		{inbox.FieldDeadLetterConsumer, e.Message.Consumer},
		{inbox.FieldDeadLetterAttempts, strconv.Itoa(e.Past.Failures)},
	}
	for i := range all {
		all[i].Value = shortened(all[i].Value)
	}
	return all
}

// shortened is what fits an attribute, in whole characters.
func shortened(value string) string {
	value = strings.ToValidUTF8(value, "\uFFFD")
	if len(value) <= maxAttributeBytes {
		return value
	}
	end := maxAttributeBytes
	for !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}
