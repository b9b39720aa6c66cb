package testservers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLaunchPubSub(t *testing.T) {
	jar, found := findPubSub(t.Context())
	if !found {
		t.Skip(Missing(PubSubJarVariable))
	}
	t.Setenv("TMPDIR", worldTempDir(t))
	server, err := launchPubSub(t.Context(), jar)
	require.NoError(t, err)
	require.Regexp(t, `^\d+\.\d+`, server.Version)
	_, err = probePubSub(t.Context(), server.URL)
	require.NoError(t, err)
	require.NoError(t, server.stop())
	_, err = probePubSub(t.Context(), server.URL)
	require.Error(t, err, "the server is gone")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "and its files with it")
}

// The emulator is found in the SDK of the environment, and in the one that gcloud is a part of, behind
// links.
func TestFindPubSub(t *testing.T) {
	root := t.TempDir()
	root, err := filepath.EvalSymlinks(root)
	require.NoError(t, err)
	jar := filepath.Join(root, "platform", "pubsub-emulator", "lib", "cloud-pubsub-emulator-9.9.9-all.jar")
	for path, content := range map[string]string{
		jar:                                  "",
		filepath.Join(root, "bin", "gcloud"): "#!/bin/sh\n",
		filepath.Join(root, "java", "java"):  "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o700))
	}
	for _, variable := range []string{"JAVA_HOME", PubSubJarVariable, "CLOUDSDK_ROOT", "CLOUDSDK_ROOT_DIR"} {
		t.Setenv(variable, "")
	}
	t.Setenv("PATH", filepath.Join(root, "java"))
	t.Setenv("CLOUDSDK_ROOT_DIR", root)
	found, is := findPubSub(t.Context())
	require.True(t, is)
	require.Equal(t, jar, found)

	t.Setenv("CLOUDSDK_ROOT_DIR", "")
	links := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(root, "bin", "gcloud"), filepath.Join(links, "gcloud")))
	t.Setenv("PATH", filepath.Join(root, "java")+":"+links)
	found, is = findPubSub(t.Context())
	require.True(t, is)
	require.Equal(t, jar, found)

	t.Setenv(PubSubJarVariable, filepath.Join(root, "nowhere.jar"))
	_, is = findPubSub(t.Context())
	require.False(t, is)
}
