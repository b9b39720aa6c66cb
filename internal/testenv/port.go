package testenv

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// ports that tests of this process have taken.
var ports sync.Map

// FreePort returns a port of this machine for a server that the test starts. It is below those that
// the system hands out, so that no other process gets it before the server; and so is the bus port
// of a node of a Redis Cluster, which is 10,000 above it. No two tests of a process get the same
// one.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(10_000)
		if _, taken := ports.LoadOrStore(port, true); !taken && free(port) && free(port+10_000) {
			return strconv.Itoa(port)
		}
	}
	require.Fail(t, "no port is free")
	return ""
}

func free(port int) bool {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
