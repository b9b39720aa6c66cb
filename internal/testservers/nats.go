package testservers

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	natsName = "NATS"
	// natsPackage is what tests have in their process, in the version that go.work agrees on.
	natsPackage = "github.com/nats-io/nats-server/v2"
	natsBinary  = "nats-server.exe" // Windows wants the ending, nobody else minds it
)

// nats is started by the tests themselves, in a few milliseconds, and killed by them.
var nats = &service{
	name: natsName, binVariable: NATSBinVariable, find: findNATS, fetch: buildNATS,
	remedy: "make test-all builds it with the go command; " + NATSBinVariable + " names a nats-server",
}

// findNATS returns the path that the variable names, else what was built before. One in PATH may be
// of any version.
func findNATS(ctx context.Context) (string, bool) {
	path := os.Getenv(NATSBinVariable)
	if path == "" {
		version, err := natsVersion(ctx)
		dir, cacheErr := cacheDir()
		if err != nil || cacheErr != nil {
			return "", false
		}
		path = filepath.Join(dir, natsDir(version), natsBinary)
	}
	found, err := exec.LookPath(path)
	return found, err == nil
}

// buildNATS builds the server into the cache, which keeps one of each version.
func buildNATS(ctx context.Context, log io.Writer) (string, error) {
	version, err := natsVersion(ctx)
	if err != nil {
		return "", err
	}
	dir, err := cached(log, natsDir(version), natsPackage+"@"+version+", built with the go command,", func(dir string) error {
		_, err := execute(ctx, "go", "build", "-trimpath", "-o", filepath.Join(dir, natsBinary), natsPackage)
		return err
	})
	return filepath.Join(dir, natsBinary), err
}

func natsVersion(ctx context.Context) (string, error) {
	said, err := execute(ctx, "go", "list", "-f", "{{.Module.Version}}", natsPackage)
	return strings.TrimSpace(said), err
}

func natsDir(version string) string { return "nats-server-" + version }
