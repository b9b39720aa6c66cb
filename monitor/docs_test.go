package monitor

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The guide has every address.
func TestGuideIsComplete(t *testing.T) {
	t.Parallel()
	guide := testenv.Page(t, "monitoring.md")
	for _, r := range newHandler(t, &fake{}).routes {
		assert.Contains(t, guide, "`"+r.method+" /"+r.path+"`")
	}
	for _, verb := range Verbs() {
		assert.Contains(t, guide, "`"+verb+"`")
	}
}
