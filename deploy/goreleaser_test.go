package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The release builds a static program, and packs files that exist.
func TestRelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../.goreleaser.yaml")
	require.NoError(t, err)
	require.NoError(t, follows(t, "testdata/goreleaser.schema.json")(text))
	var release struct {
		Builds []struct {
			Main string
			Env  []string
		}
		Archives []struct{ Files []any }
	}
	require.NoError(t, yaml.Unmarshal(text, &release))
	assert.FileExists(t, filepath.Join("..", release.Builds[0].Main, "main.go"))
	assert.Contains(t, release.Builds[0].Env, "CGO_ENABLED=0")
	for _, file := range release.Archives[0].Files {
		if mapped, ok := file.(map[string]any); ok {
			file = mapped["src"]
		}
		assert.FileExists(t, filepath.Join("..", file.(string)))
	}
}
