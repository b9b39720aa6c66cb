package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What go install builds for operators has no server of tests or of the demo in it. Its packages are
// among those of this test's program, so that go test runs it again when any of them changes.
func TestNoFakeIsLinked(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	assert.Greater(t, len(packages), 100)
	for _, linked := range packages {
		for _, fake := range []string{
			"github.com/alicebob/miniredis", "github.com/yuin/gopher-lua", "cloud.google.com/go/pubsub/v2/pstest", "github.com/nats-io/nats-server",
			"github.com/twmb/franz-go/pkg/kfake", "github.com/gorm-fanout/fanout/demo", "net/http/httptest", "testing",
		} {
			assert.False(t, linked == fake || strings.HasPrefix(linked, fake+"/"), "fanout links %s", linked)
		}
	}
}
