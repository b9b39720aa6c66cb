package nats_test

import (
	"testing"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
)

// beside is what tests have beside servers in this process: processes, and networks that fail. make test
// lays a file over this package that sets it (integration/testdata/overlay), since a released module uses
// only what is public of the others, in tests, too. A plain go test skips what needs it.
var beside struct {
	network   func(t testing.TB, server string) faultyNetwork
	processes func(t testing.TB, size int) []process // one server, or a cluster
}

// A faultyNetwork lies before one server.
type faultyNetwork interface {
	brokertest.Network
	Addr(t testing.TB) string
}

// A process is a server that a test may kill, and start again.
type process struct {
	url, address string
	kill, start  func(t testing.TB)
}

func needBeside(t testing.TB, given bool) {
	t.Helper()
	if !given {
		t.Skip("needs servers or networks that make test has")
	}
}
