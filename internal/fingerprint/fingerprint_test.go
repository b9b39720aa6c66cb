package fingerprint

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShape(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"timeout after 30s": "timeout after #",
		"dial tcp 10.0.0.7:6379: connect: connection refused":      "dial tcp @: connect: connection refused",
		"dial tcp [::1]:6379: i/o timeout":                         "dial tcp @: i/o timeout",
		"lookup cache-a.internal:6379 failed":                      "lookup @ failed",
		`topic "orders" not found`:                                 "topic '…' not found",
		"can't decode":                                             "can't decode",
		"order 5f0c8a9e-1111-4222-8333-abcdefabcdef is  gone\n":    "order # is gone",
		"order aabbccdd-abcd-abcd-abcd-abcdefabcdef is gone":       "order # is gone",
		"mail to ann@example.org: https://x.example/a?b=c refused": "mail to @ @ refused",
		"": "",
	} {
		assert.Equal(t, want, shape(message), message)
	}
}
