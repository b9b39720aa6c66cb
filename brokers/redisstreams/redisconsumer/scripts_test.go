package redisconsumer

import (
	"crypto/sha1" // Redis names scripts by it
	"embed"
	"fmt"
	"io/fs"
	"path"
	"testing"

	"github.com/gorm-fanout/fanout/internal/testenv"

	"github.com/stretchr/testify/require"
)

//go:embed lua
var scriptFiles embed.FS

// TestDigests keeps lua/digests to the scripts; FANOUT_UPDATE_GOLDEN writes it anew.
func TestDigests(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(scriptFiles, "lua/*.lua")
	require.NoError(t, err)
	want := ""
	for _, file := range files {
		text, err := scriptFiles.ReadFile(file)
		require.NoError(t, err)
		want += fmt.Sprintf("%x  %s\n", sha1.Sum(text), path.Base(file))
	}
	testenv.Golden(t, scriptFiles, "lua/digests", want)
}
