package testservers

import (
	"context"
	"io"
)

// source is where a server comes from.
type source string

const (
	fromEnvironment source = "environment"
	fromEngine      source = "container engine"
	fromBinaries    source = "binaries"
	fromPackages    source = "package manager"
)

// facts are what the choice of a source depends on.
type facts struct {
	given  bool // a variable names the server
	engine bool // Docker Compose has a running engine
	binary bool // the server's binary is on this machine
}

// choose picks the source of one server: what the user said, then what changes the machine least.
func choose(f facts) source {
	switch {
	case f.given:
		return fromEnvironment
	case f.engine:
		return fromEngine
	case f.binary:
		return fromBinaries
	default:
		return fromPackages
	}
}

// service is one kind of server and all that differs between the kinds.
type service struct {
	name        string
	variable    string // names a server that is there
	binVariable string // names the binary
	container   string // its service in integration/compose.yaml
	port        string // its port in the container

	// find looks for the binary (for PostgreSQL: for the directory of its binaries).
	find func(ctx context.Context) (string, bool)
	// launch starts the binary and waits until it answers.
	launch func(ctx context.Context, binary string) (*Server, error)
	// probe connects once and returns the server's version.
	probe func(ctx context.Context, url string) (string, error)
	// containerURL is the URL of the container's server at a published address.
	containerURL func(address string) string

	// fetch gets the binary of an optional server, and announces on log what takes long or changes the
	// machine; remedy says to people how they get it.
	fetch  func(ctx context.Context, log io.Writer) (string, error)
	remedy string
	// version is that of a binary that only tests start, where launch is nil.
	version func(ctx context.Context, binary string) (string, error)
}
