package bed

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Wire counts what connections send to the server, in its own protocol, whoever in this process sends it.
type Wire struct {
	statements, pings atomic.Int64
}

// Count makes all connections of a pool that is not open yet be counted.
func (w *Wire) Count(config *pgxpool.Config) {
	config.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		return &wireConn{Conn: conn, wire: w}, nil
	}
}

// Statements is how many the server was told to execute so far, those among them that begin and end transactions included, and
// the pings, too, by which the pool tries out a connection that has been idle.
func (w *Wire) Statements() (all, pings int64) { return w.statements.Load(), w.pings.Load() }

// wireConn reads along.
type wireConn struct {
	net.Conn

	wire    *Wire
	started bool
	partial []byte // of a message
}

// Write implements net.Conn. One goroutine writes at a time.
func (c *wireConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.partial = append(c.partial, p[:n]...)
	for c.next() {
	}
	return n, err
}

// next takes one whole message away: a letter, which the very first one does not have, its length without the letter, and a text.
func (c *wireConn) next() bool {
	const word = 4
	letter := 0
	if c.started {
		letter = 1
	}
	if len(c.partial) < letter+word {
		return false
	}
	length := letter + int(binary.BigEndian.Uint32(c.partial[letter:]))
	if len(c.partial) < length {
		return false
	}
	if c.started {
		c.count(c.partial[0], c.partial[letter+word:length])
	}
	c.started = true
	c.partial = c.partial[length:]
	return true
}

func (c *wireConn) count(letter byte, text []byte) {
	switch letter {
	case 'Q': // a text, of one statement as far as the library goes
		if bytes.HasPrefix(text, []byte("-- ping")) {
			c.wire.pings.Add(1)
		}
		c.wire.statements.Add(1)
	case 'E': // execute what was prepared
		c.wire.statements.Add(1)
	}
}
