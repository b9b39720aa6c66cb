package testservers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// sharedCache holds what was fetched by root, whose own cache servers of other accounts cannot read.
const sharedCache = "/var/cache"

// cacheDir is where fetched binaries are kept for later runs, outside of the repository.
func cacheDir() (string, error) {
	parent, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("testservers: directory for fetched servers: %w", err)
	}
	if os.Geteuid() == 0 {
		if parent, err = traversable(parent, sharedCache); err != nil {
			return "", err
		}
	}
	return filepath.Join(parent, "fanout-test"), nil
}

// cached returns the directory called name in the cache. Where there is none, it announces on log
// what is about to be fetched, and has the caller fill a new one, which gets its name when it is complete:
// a fetch that was interrupted leaves nothing that a later run takes for a server.
func cached(log io.Writer, name, what string, fill func(dir string) error) (string, error) {
	parent, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // servers run as other accounts
		return "", fmt.Errorf("testservers: directory for fetched servers: %w", err)
	}
	partial, err := os.MkdirTemp(parent, "partial-")
	if err != nil {
		return "", fmt.Errorf("testservers: directory for fetched servers: %w", err)
	}
	fmt.Fprintf(log, "testservers: fetching %s into %s\n", what, dir)
	if err = os.Chmod(partial, 0o755); err == nil { //nolint:gosec // as above
		err = fill(partial)
	}
	if err == nil {
		err = os.Rename(partial, dir)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("testservers: fetch %s: %w", what, err), os.RemoveAll(partial))
	}
	return dir, nil
}
