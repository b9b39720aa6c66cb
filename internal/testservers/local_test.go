package testservers

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These start real servers, where their binaries are; a machine without them is told so.

func TestLaunch(t *testing.T) {
	for _, svc := range []*service{postgres, redis, mysql, rabbitMQ, toxiproxy} {
		t.Run(svc.name, func(t *testing.T) {
			if svc == rabbitMQ { // which takes as long as all others together
				needAll(t)
			}
			binary, ok := svc.find(t.Context())
			if !ok {
				t.Skipf("no binary of %s here", svc.name)
			}
			t.Setenv("TMPDIR", worldTempDir(t))
			server, err := svc.launch(t.Context(), binary)
			require.NoError(t, err)

			version, err := svc.probe(t.Context(), server.URL)
			require.NoError(t, err)
			require.Equal(t, server.Version, version)

			require.NoError(t, server.stop())
			_, err = svc.probe(t.Context(), server.URL)
			require.Error(t, err, "the server is gone")
			left, err := os.ReadDir(os.TempDir())
			require.NoError(t, err)
			require.Empty(t, left, "and its files with it")
		})
	}
}

func TestLaunchShowsTheLogOfAServerThatFails(t *testing.T) {
	files, err := newWorkspace("test", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, files.remove()) })
	run := &local{
		name: "Thing", workspace: files,
		command: func(string) *exec.Cmd {
			return files.command(t.Context(), "sh", "-c", "echo no such option: -x; exit 1")
		},
		ready: func(context.Context, string, int) error { return errRefused },
	}
	_, _, err = run.run(t.Context())
	require.ErrorIs(t, err, errExited)
	require.ErrorContains(t, err, "no such option: -x")
}

func TestLaunchTriesAnotherPort(t *testing.T) {
	for _, said := range []string{"bind: Address already in use", "{listen_error,{acceptor,{127,0,0,1},30672},eaddrinuse}"} {
		files, err := newWorkspace("test", nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, files.remove()) })
		starts := 0
		run := &local{
			name: "Thing", workspace: files,
			command: func(string) *exec.Cmd {
				starts++
				return files.command(t.Context(), "sh", "-c", "echo '"+said+"'; exit 1")
			},
			ready: func(context.Context, string, int) error { return errRefused },
		}
		_, _, err = run.run(t.Context())
		require.ErrorContains(t, err, said)
		require.Equal(t, launchAttempts, starts, said)
	}
}

func TestProbesKeepPasswordsOutOfErrors(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, svc := range []*service{postgres, redis, mysql} {
		for _, address := range []string{"127.0.0.1:1", "127.0.0.1:port", "%zz"} {
			_, err := svc.probe(ctx, svc.container+"://"+url.UserPassword("me", "hush").String()+"@"+address)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "hush")
		}
	}
}

// worldTempDir is a new temporary directory that an unprivileged server can reach; t.TempDir is
// closed to others.
func worldTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fanout-test-") //nolint:usetesting // see above
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
