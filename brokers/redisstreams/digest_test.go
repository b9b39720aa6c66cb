package redisstreams

import (
	"crypto/sha1" // Redis names scripts by it
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/golden"
)

// TestDigest keeps xadd.sha1 to the script; FANOUT_UPDATE_GOLDEN writes it anew.
func TestDigest(t *testing.T) {
	t.Parallel()
	want := fmt.Sprintf("%x\n", sha1.Sum([]byte(source)))
	update, err := golden.Update()
	require.NoError(t, err)
	if update {
		require.NoError(t, os.WriteFile("xadd.sha1", []byte(want), 0o600))
	}
	assert.Equal(t, want, digestText, "FANOUT_UPDATE_GOLDEN=1 go test -run %s", t.Name())
}
