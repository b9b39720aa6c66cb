package kafkaconsumer

import (
	"testing"

	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

// beside is what tests have beside clusters in this process: real servers, and networks that fail. make
// test lays a file over this package that sets it (integration/testdata/overlay), since a released module
// uses only what is public of the others, in tests, too. A plain go test skips what needs it.
var beside struct {
	network func(t testing.TB, server string) faultyNetwork
	servers func(t testing.TB) []string               // a cluster that other tests use, too
	secured func(t testing.TB) (open, secured string) // one server: who may what counts at the second address
}

// A faultyNetwork lies before one server.
type faultyNetwork interface {
	consumertest.Network
	Addr(t testing.TB) string
}

func needBeside(t testing.TB, given bool) {
	t.Helper()
	if !given {
		t.Skip("needs servers or networks that make test has")
	}
}

// realServers are those of a cluster that others use at the same time.
func realServers(t testing.TB) []string {
	t.Helper()
	needBeside(t, beside.servers != nil)
	return beside.servers(t)
}
