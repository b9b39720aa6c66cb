//go:build unix

package postgres

import (
	"crypto/tls"
	"net"
	"syscall"
)

// ended reports whether something has arrived on a connection that waits for nothing: most likely
// that the server has ended the session (idle_session_timeout, a restart). It asks the operating
// system, not the server, and takes nothing from the connection. It does not wait for a reader that
// pgx has left there after a slow write, as RawConn.Read would: that one reads until something comes.
func ended(conn net.Conn) bool {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	var arrived bool
	err = raw.Control(func(fd uintptr) {
		var first [1]byte
		_, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
		arrived = err != syscall.EAGAIN && err != syscall.EINTR
	})
	return err != nil || arrived
}
