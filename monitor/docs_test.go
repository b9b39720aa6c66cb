package monitor

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The guide has every address.
func TestGuideIsComplete(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/monitoring.md")
	require.NoError(t, err)
	for _, r := range newHandler(t, &fake{}).routes {
		assert.Contains(t, string(guide), "`"+r.method+" /"+r.path+"`")
	}
	for _, verb := range Verbs() {
		assert.Contains(t, string(guide), "`"+verb+"`")
	}
}
