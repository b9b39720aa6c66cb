package redisstreams

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What an error of the server means is written down in both places where an operator may look.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"doc.go", "../../docs/brokers.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, r := range rules {
			assert.Regexp(t, `(?m)^(//\t|\|).*\b`+r.prefix+`\b`, string(text), "%s has no line for %s", file, r.prefix)
		}
	}
}
