package kafka_test

import (
	"syscall"
	"testing"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
)

// beside is what tests have beside clusters in this process: real servers, and networks that fail. make
// test lays a file over this package that sets it (integration/testdata/overlay), since a released module
// uses only what is public of the others, in tests, too. A plain go test skips what needs it.
var beside struct {
	network func(t testing.TB, server string) faultyNetwork
	servers func(t testing.TB) []string                                                                   // a cluster that other tests use, too
	secured func(t testing.TB) (open, secured string)                                                     // one server: who may what counts at the second address
	trio    func(t testing.TB) []string                                                                   // three servers, which no test stops
	ownTrio func(t testing.TB) (servers []string, signal func(server int32, signal syscall.Signal) error) // three of this test's own
}

// A faultyNetwork lies before one server.
type faultyNetwork interface {
	brokertest.Network
	Addr(t testing.TB) string
	Down(t testing.TB)
	Up(t testing.TB)
}

func needBeside(t testing.TB, given bool) {
	t.Helper()
	if !given {
		t.Skip("needs servers or networks that make test has")
	}
}

// realCluster is one that other tests use, too.
func realCluster(t testing.TB) *reader {
	t.Helper()
	needBeside(t, beside.servers != nil)
	return newReader(t, beside.servers(t))
}
