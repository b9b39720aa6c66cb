package rabbitmq

import (
	_ "embed"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

//go:embed doc.go
var docGo string

// What the server's words mean is written down where an operator may look.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		line := `(?m)^//\t` + strconv.Itoa(r.code) + ` *` + regexp.QuoteMeta(r.phrase) + `.* unavailable +` + string(r.scope) + ` `
		assert.Regexp(t, line, docGo, "no line for %d %s", r.code, r.phrase)
	}
}
