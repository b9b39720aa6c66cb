package redisstreams

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/redisreply"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

//go:embed doc.go
var docGo string

// What an error of the server means is written down in both places where an operator may look.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	for file, text := range map[string]string{"doc.go": docGo, "docs/brokers.md": testenv.Page(t, "brokers.md")} {
		for _, m := range redisreply.Meanings() {
			if m.Prefix != "NOGROUP" && m.Prefix != "UNBLOCKED" { // what only consumers are told
				assert.Regexp(t, `(?m)^(//\t|\|).*\b`+m.Prefix+`\b`, text, "%s has no line for %s", file, m.Prefix)
			}
		}
	}
}
