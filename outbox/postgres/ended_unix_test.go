//go:build unix

package postgres

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whether a connection has ended is known beside a reader that waits for something to arrive there.
func TestEnded(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	require.NoError(t, err)
	defer listener.Close()
	connect := func() (client, server net.Conn) {
		client, err := net.Dial("tcp", listener.Addr().String()) //nolint:noctx // at once
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		server, err = listener.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = server.Close() })
		return client, server
	}
	soon := func(conn net.Conn) func() bool { return func() bool { return ended(conn) } }

	client, server := connect()
	assert.False(t, ended(client))
	_, err = server.Write([]byte("E"))
	require.NoError(t, err)
	assert.Eventually(t, soon(client), 10*time.Second, time.Millisecond)
	var got [1]byte
	_, err = client.Read(got[:])
	require.NoError(t, err)
	assert.Equal(t, "E", string(got[:]), "nothing is taken")
	assert.False(t, ended(client))
	require.NoError(t, server.Close())
	assert.Eventually(t, soon(client), 10*time.Second, time.Millisecond)

	client, server = connect()
	reading, read := make(chan struct{}), make(chan error)
	go func() {
		var one [1]byte
		close(reading)
		_, err := client.Read(one[:])
		read <- err
	}()
	<-reading
	for range 1000 {
		require.False(t, ended(client))
	}
	require.NoError(t, server.Close())
	require.Error(t, <-read)
}
