// This file is laid over the package when make test builds its tests: see beside.
package nats_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func init() {
	beside.network = func(t testing.TB, server string) faultyNetwork { return toxic.Start(t, server) }
	beside.processes = processes
}

func processes(t testing.TB, size int) (all []process) {
	t.Helper()
	testenv.Optional(t, testservers.NATSBinVariable)
	if size > 1 {
		testenv.Uses(t, testservers.NATSBinVariable+", cluster")
	}
	var (
		nodes = make([]*testservers.Own, 1)
		err   error
	)
	if size == 1 {
		nodes[0], err = testservers.OwnNATS(t.Context())
	} else {
		nodes, err = testservers.OwnNATSCluster(t.Context(), size)
	}
	require.NoError(t, err)
	for _, node := range nodes {
		t.Cleanup(func() { require.NoError(t, node.Close()) })
		all = append(all, process{
			url: node.URL, address: node.Address(),
			kill:  func(t testing.TB) { require.NoError(t, node.End(syscall.SIGKILL, patience)) },
			start: func(t testing.TB) { require.NoError(t, node.Start(context.WithoutCancel(t.Context()))) },
		})
	}
	return all
}
