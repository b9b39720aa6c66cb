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
)

// nats is started by the tests themselves, in a few milliseconds, and killed by them.
var nats = &service{
	name: natsName, binVariable: NATSBinVariable, find: findNATS, fetch: buildNATS,
	remedy: "make test-all builds it with the go command; " + NATSBinVariable + " names a nats-server",
}

// findNATS returns the path that the variable names. One in PATH may be of any version.
func findNATS(context.Context) (string, bool) {
	found, err := exec.LookPath(os.Getenv(NATSBinVariable))
	return found, err == nil
}

// buildNATS builds the server into the cache, which keeps one of each version.
func buildNATS(ctx context.Context, log io.Writer) (string, error) {
	said, err := execute(ctx, "go", "list", "-f", "{{.Module.Version}}", natsPackage)
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(said)
	dir, err := cached(log, "nats-server-"+version, natsPackage+" "+version+", built with the go command,", func(dir string) error {
		_, err := execute(ctx, "go", "build", "-o", filepath.Join(dir, "nats-server"), natsPackage)
		return err
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "nats-server"), nil
}
