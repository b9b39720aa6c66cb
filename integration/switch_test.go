package integration_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// switchboard stands at one address before servers that take turns, as the name or the proxy does
// by which applications reach whatever server is the primary at the moment.
type switchboard struct {
	listener net.Listener
	open     sync.WaitGroup

	mu       sync.Mutex
	upstream string // empty: nobody answers
	links    map[net.Conn]struct{}
	closed   bool
}

func newSwitchboard(t *testing.T, upstream string) *switchboard {
	t.Helper()
	return newSwitchboardAt(t, "127.0.0.1:0", upstream)
}

func newSwitchboardAt(t *testing.T, addr, upstream string) *switchboard {
	t.Helper()
	listener, err := net.Listen("tcp", addr) //nolint:noctx // it is at once
	require.NoError(t, err)
	s := &switchboard{listener: listener, upstream: upstream, links: map[net.Conn]struct{}{}}
	s.open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			s.open.Go(func() { s.serve(client) })
		}
	})
	t.Cleanup(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.to("")
		_ = listener.Close()
		s.open.Wait()
	})
	return s
}

func (s *switchboard) addr() string { return s.listener.Addr().String() }

// to ends all connections, and leads new ones to another server.
func (s *switchboard) to(upstream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upstream = upstream
	for link := range s.links {
		_ = link.Close()
	}
	clear(s.links)
}

func (s *switchboard) serve(client net.Conn) {
	defer client.Close()
	s.mu.Lock()
	upstream := s.upstream
	s.mu.Unlock()
	if upstream == "" {
		return
	}
	server, err := net.Dial("tcp", upstream) //nolint:noctx // to ends it
	if err != nil {
		return
	}
	defer server.Close()
	s.mu.Lock()
	stale := s.closed || s.upstream != upstream
	if !stale {
		s.links[client], s.links[server] = struct{}{}, struct{}{}
	}
	s.mu.Unlock()
	if stale {
		return
	}
	s.open.Go(func() {
		_, _ = io.Copy(client, server)
		_, _ = client.Close(), server.Close()
	})
	_, _ = io.Copy(server, client)
	s.mu.Lock()
	delete(s.links, client)
	delete(s.links, server)
	s.mu.Unlock()
}

// deadPort is an address at which nobody listens.
func deadPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at once
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// hostOf is the address in a URL.
func hostOf(t *testing.T, server string) string {
	t.Helper()
	parsed, err := url.Parse(server)
	require.NoError(t, err)
	return parsed.Host
}

// behind replaces the address in a URL.
func behind(t *testing.T, server, address string) string {
	t.Helper()
	parsed, err := url.Parse(server)
	require.NoError(t, err)
	parsed.Host = address
	return parsed.String()
}
