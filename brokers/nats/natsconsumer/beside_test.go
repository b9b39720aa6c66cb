package natsconsumer

import (
	"testing"

	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

// beside is what tests have beside servers in this process: processes, and networks that fail. make test
// lays a file over this package that sets it (integration/testdata/overlay), since a released module uses
// only what is public of the others, in tests, too. A plain go test skips what needs it.
var beside struct {
	network   func(t testing.TB, server string) faultyNetwork
	processes func(t *testing.T, size int) *consumertest.Harness // on one server, or a cluster
}

// A faultyNetwork lies before one server.
type faultyNetwork interface {
	consumertest.Network
	Addr(t testing.TB) string
}

// startNetwork puts a network before a server.
func startNetwork(t testing.TB, server string) faultyNetwork {
	t.Helper()
	needBeside(t, beside.network != nil)
	return beside.network(t, server)
}

func needBeside(t testing.TB, given bool) {
	t.Helper()
	if !given {
		t.Skip("needs servers or networks that make test has")
	}
}
