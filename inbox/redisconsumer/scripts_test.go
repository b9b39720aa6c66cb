package redisconsumer

import (
	"crypto/sha1" // Redis names scripts by it
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDigests keeps lua/digests to the scripts; FANOUT_UPDATE_GOLDEN writes it anew.
func TestDigests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	want := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		want += fmt.Sprintf("%x  %s\n", sha1.Sum(text), filepath.Base(file))
	}
	if os.Getenv("FANOUT_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("lua/digests", []byte(want), 0o600))
	}
	assert.Equal(t, want, digests, "FANOUT_UPDATE_GOLDEN=1 go test -run %s", t.Name())
}
