package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const goreleaser = "../.goreleaser.yaml"

func TestRelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(goreleaser)
	require.NoError(t, err)
	require.NoError(t, follows(t, "testdata/goreleaser.schema.json")(text))
	var release struct {
		Builds []struct {
			Main         string
			Env, Ldflags []string
			Goos, Goarch []string
		}
		Archives []struct{ Files []any }
		SBOMs    []struct{ Artifacts string } `yaml:"sboms"`
		Checksum struct{ Algorithm string }
	}
	require.NoError(t, yaml.Unmarshal(text, &release))
	require.Len(t, release.Builds, 1)
	build := release.Builds[0]
	assert.FileExists(t, filepath.Join("..", build.Main, "main.go"))
	assert.Contains(t, build.Env, "CGO_ENABLED=0")
	assert.Equal(t, []string{"-s -w -X main.stampedVersion={{ .Tag }} -X main.stampedCommit={{ .FullCommit }} -X github.com/gorm-fanout/fanout.stampedVersion={{ .Tag }}"}, build.Ldflags)
	for _, file := range release.Archives[0].Files {
		name, ok := file.(string)
		if !ok {
			name, ok = file.(map[string]any)["src"].(string)
		}
		assert.True(t, ok)
		assert.FileExists(t, filepath.Join("..", name))
	}
	require.Len(t, release.SBOMs, 1)
	assert.Equal(t, "archive", release.SBOMs[0].Artifacts)
	assert.Equal(t, "sha256", release.Checksum.Algorithm)
}
