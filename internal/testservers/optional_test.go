package testservers

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An optional server comes from its variable, its binary, or is fetched; one that cannot be had is
// said together with the remedy, and is no error.
func TestOptional(t *testing.T) {
	var (
		log     strings.Builder
		fetched error
		found   string
	)
	thing := &service{
		name: "Thing", variable: "FANOUT_TEST_THING", binVariable: "FANOUT_TEST_THING_BIN", remedy: "Buy one",
		find:    func(context.Context) (string, bool) { return found, found != "" },
		fetch:   func(context.Context, io.Writer) (string, error) { return "/fetched", fetched },
		version: func(context.Context, string) (string, error) { return "0.9", nil },
		probe: func(_ context.Context, url string) (string, error) {
			if url != "thing://answers" {
				return "", errRefused
			}
			return "1.0", nil
		},
	}
	start := func() ([]string, error) {
		log.Reset()
		s := &Servers{log: &log, byService: map[string]*Server{}, binaries: map[string]string{}, versions: map[string]string{}}
		err := s.startOptional(t.Context(), []*service{thing})
		return s.environ([]*service{thing}), err
	}
	environ, err := start()
	require.NoError(t, err)
	require.Equal(t, []string{"FANOUT_TEST_THING_BIN=/fetched"}, environ)

	fetched = errors.New("no network")
	environ, err = start()
	require.NoError(t, err)
	require.Empty(t, environ)
	require.Equal(t, "testservers: no Thing, so its tests are skipped: no network. Buy one\n", log.String())

	fetched = nil
	t.Setenv(InstallVariable, "0")
	environ, err = start()
	require.NoError(t, err)
	require.Empty(t, environ)
	require.Contains(t, log.String(), InstallVariable+"=0 forbids")

	found = "/found"
	environ, err = start()
	require.NoError(t, err)
	require.Equal(t, "Thing 0.9: /found, which tests start\n", log.String())
	require.Equal(t, []string{"FANOUT_TEST_THING_BIN=/found"}, environ)

	t.Setenv("FANOUT_TEST_THING", "thing://answers")
	environ, err = start()
	require.NoError(t, err)
	require.Equal(t, []string{"FANOUT_TEST_THING=thing://answers", "FANOUT_TEST_THING_BIN=/found"}, environ)

	t.Setenv("FANOUT_TEST_THING", "thing://silent")
	_, err = start()
	require.ErrorIs(t, err, errRefused)
}

// What was fetched once is not fetched again, and what was fetched in part never counts.
func TestCached(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", worldTempDir(t))
	var log strings.Builder
	fill := func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte("whole"), 0o600) }
	_, err := cached(&log, "thing-1", "Thing", func(dir string) error { return errors.Join(fill(dir), errRefused) })
	require.ErrorIs(t, err, errRefused)
	dir, err := cached(&log, "thing-1", "Thing", fill)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "file"))
	again, err := cached(&log, "thing-1", "Thing", func(string) error { return errRefused })
	require.NoError(t, err)
	require.Equal(t, dir, again)
	require.Equal(t, 2, strings.Count(log.String(), "fetching Thing into"))
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
