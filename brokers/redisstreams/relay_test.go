package redisstreams_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
)

// A relay outlives a server that takes nothing.
func TestFault30RelayOutlivesAServerThatTakesNothing(t *testing.T) {
	t.Parallel()
	t.Run("OOM", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
		relaytest.Outlives(t, relaytest.Outage{
			Target: open(t, s.url()), Says: "OOM", Logged: brokers.ScopeBroker, Heal: func() { s.do(t, "CONFIG", "SET", "maxmemory", 0) },
		})
		assert.Equal(t, 50, s.length(t, "s"), "each once")
	})
	t.Run("READONLY", func(t *testing.T) {
		t.Parallel()
		s := startReplica(t, startServer(t))
		relaytest.Outlives(t, relaytest.Outage{
			Target: open(t, s.url()), Says: "READONLY", Logged: brokers.ScopeBroker, Heal: func() { s.do(t, "REPLICAOF", "NO", "ONE") },
		})
	})
}

// The user of a relay may write to one stream of two: the other one waits until the right is granted.
func TestFault14RightOfOneStreamIsMissing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do(t, "ACL", "SETUSER", "narrow", "on", ">secret", "~allowed", "+evalsha", "+eval", "+xadd", "+ping")
	relaytest.Outlives(t, relaytest.Outage{
		Target: open(t, "redis://narrow:secret@"+s.addr()), Stream: "other", Beside: "allowed", Says: "NOPERM", Logged: brokers.ScopeDestination,
		Heal: func() { s.do(t, "ACL", "SETUSER", "narrow", "~other") },
	})
}
