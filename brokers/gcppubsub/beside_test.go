package gcppubsub_test

import (
	"testing"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
)

// beside is what tests have beside the fake: Google's emulator, and networks that fail. make test lays a
// file over this package that sets it (integration/testdata/overlay), since a released module uses only
// what is public of the others, in tests, too. A plain go test skips what needs it.
var beside struct {
	network  func(t testing.TB, server string) faultyNetwork
	emulator func(t testing.TB) (address string)
}

// A faultyNetwork lies before one server.
type faultyNetwork interface {
	brokertest.Network
	Addr(t testing.TB) string
}

func needBeside(t testing.TB, given bool) {
	t.Helper()
	if !given {
		t.Skip("needs servers or networks that make test has")
	}
}
