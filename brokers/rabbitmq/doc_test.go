package rabbitmq

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the server's words mean is written down where an operator may look.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for _, r := range rules {
		line := `(?m)^//\t` + strconv.Itoa(r.code) + ` *` + regexp.QuoteMeta(r.phrase) + `.* unavailable +` + string(r.scope) + ` `
		assert.Regexp(t, line, string(text), "no line for %d %s", r.code, r.phrase)
	}
}
