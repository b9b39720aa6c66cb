package integration_test

import (
	"bytes"
	numbers "encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// commitProxy stands before PostgreSQL or MySQL, understands what passes, and cuts connections at a
// COMMIT: after it was sent, and before its answer arrives. Where the server processed it, and where it
// never got there, look the same to the client.
type commitProxy struct {
	listener net.Listener
	upstream string
	driver   outbox.Dialect
	open     sync.WaitGroup

	mu    sync.Mutex
	links map[net.Conn]struct{}
	armed []commitCut
	cuts  int
	whole int // commits that were not cut
}

// commitCut is a fault that waits for a transaction with a statement that contains a text.
type commitCut struct {
	text      string
	swallowed bool // the COMMIT does not reach the server
}

// newCommitProxy starts a proxy before the server at the address upstream; it ends with the test.
func newCommitProxy(t *testing.T, driver outbox.Dialect, upstream string) *commitProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at once
	require.NoError(t, err)
	p := &commitProxy{listener: listener, upstream: upstream, driver: driver, links: map[net.Conn]struct{}{}}
	p.open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.open.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for link := range p.links {
			_ = link.Close()
		}
		p.links = nil
		p.mu.Unlock()
		p.open.Wait()
	})
	return p
}

func (p *commitProxy) addr() string { return p.listener.Addr().String() }

// cut lets the next n transactions with such a statement end with an unknown outcome.
func (p *commitProxy) cut(n int, text string, swallowed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.armed = append(p.armed, commitCut{text, swallowed})
	}
}

// done is how many commits have been cut.
func (p *commitProxy) done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// passed is how many commits have not been cut.
func (p *commitProxy) passed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.whole
}

// strike returns the fault for a transaction of these statements, if there is one.
func (p *commitProxy) strike(statements []string) (commitCut, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, fault := range p.armed {
		if slices.ContainsFunc(statements, func(s string) bool { return strings.Contains(s, fault.text) }) {
			p.armed = slices.Delete(p.armed, i, i+1)
			p.cuts++
			return fault, true
		}
	}
	p.whole++
	return commitCut{}, false
}

// keep notes a connection, so that the end of the test ends it.
func (p *commitProxy) keep(link net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links == nil {
		_ = link.Close()
		return false
	}
	p.links[link] = struct{}{}
	return true
}

func (p *commitProxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.upstream) //nolint:noctx // the end of the test closes it
	if err != nil {
		_ = client.Close()
		return
	}
	c := &commitConversation{proxy: p, client: client, server: server, texts: map[string]string{}, portals: map[string]string{}, answered: make(chan struct{})}
	if p.keep(client) && p.keep(server) {
		answers, requests := c.answers, c.requests
		if p.driver == outbox.MySQL {
			answers, requests = c.answersOfMySQL, c.requestsOfMySQL
		}
		p.open.Go(answers)
		requests()
	}
	_, _ = client.Close(), server.Close()
}

// commitConversation is one connection through the proxy.
type commitConversation struct {
	proxy          *commitProxy
	client, server net.Conn
	texts          map[string]string // of prepared statements
	portals        map[string]string // what is bound to them
	statements     []string          // of the transaction in progress

	silence  sync.Mutex
	silent   bool // answers are kept from the client
	answered chan struct{}
}

// requests passes on what the client says, message by message, up to a COMMIT that is cut.
func (c *commitConversation) requests() {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.client, head); err != nil { // the first message has no kind
		return
	}
	rest := make([]byte, numbers.BigEndian.Uint32(head)-4)
	if _, err := io.ReadFull(c.client, rest); err != nil || !c.pass(slices.Concat(head, rest)) {
		return
	}
	for {
		kind, body, whole, err := readMessage(c.client)
		if err != nil {
			return
		}
		fault, struck := c.follow(c.executes(kind, body))
		if struck && kind != 'Q' {
			whole = append(whole, 'S', 0, 0, 0, 4) // Sync, so that it answers
		}
		if struck {
			c.end(fault, whole)
			return
		}
		if !c.pass(whole) {
			return
		}
	}
}

// follow notes a statement that is run, and returns the fault for a COMMIT that is to be cut.
func (c *commitConversation) follow(text string) (fault commitCut, struck bool) {
	switch {
	case text == "":
	case strings.HasPrefix(text, "begin"), text == "start transaction":
		c.statements = nil
	case text == "commit":
		fault, struck = c.proxy.strike(c.statements)
		c.statements = nil
	default:
		c.statements = append(c.statements, text)
	}
	return fault, struck
}

func (c *commitConversation) pass(message []byte) bool {
	_, err := c.server.Write(message)
	return err == nil
}

// executes returns the statement that a message runs, trimmed and in lower case; empty where it
// runs none.
func (c *commitConversation) executes(kind byte, body []byte) string {
	field := func() string {
		text, rest, _ := bytes.Cut(body, []byte{0})
		body = rest
		return string(text)
	}
	switch kind {
	case 'Q':
		return normalSQL(field())
	case 'P':
		name := field()
		c.texts[name] = normalSQL(field())
	case 'B':
		portal := field()
		c.portals[portal] = c.texts[field()]
	case 'E':
		return c.portals[field()]
	}
	return ""
}

// end cuts the connection at a COMMIT. Where the server is to process it, its answer is awaited and
// thrown away.
func (c *commitConversation) end(fault commitCut, commit []byte) {
	c.silence.Lock()
	c.silent = true
	c.silence.Unlock()
	if !fault.swallowed && c.pass(commit) {
		<-c.answered
	}
	for _, side := range []net.Conn{c.client, c.server} {
		if conn, ok := side.(*net.TCPConn); ok {
			_ = conn.SetLinger(0) // a reset, not an end
		}
	}
}

// answers passes on what the server says. Once the client is to hear nothing more, it waits for the
// server to be ready.
func (c *commitConversation) answers() {
	c.hear(func() (last bool, whole []byte, err error) {
		kind, _, whole, err := readMessage(c.server)
		return kind == 'Z', whole, err
	})
}

// hear passes on messages of the server. Once the client is to hear nothing more, it waits for the
// last one of an answer.
func (c *commitConversation) hear(read func() (last bool, whole []byte, err error)) {
	defer close(c.answered)
	for {
		last, whole, err := read()
		c.silence.Lock()
		silent := c.silent
		if err == nil && !silent {
			_, err = c.client.Write(whole)
		}
		c.silence.Unlock()
		switch {
		case silent && (err != nil || last):
			return // whoever made it so closes it
		case err != nil:
			_ = c.client.Close()
			return
		}
	}
}

var errOddMessage = errors.New("a message of PostgreSQL's protocol has an odd length")

// readMessage reads a message of PostgreSQL's protocol: its kind, its body, and all its bytes.
func readMessage(from io.Reader) (kind byte, body, whole []byte, err error) {
	whole = make([]byte, 5)
	if _, err := io.ReadFull(from, whole); err != nil {
		return 0, nil, nil, err
	}
	length := numbers.BigEndian.Uint32(whole[1:])
	if length < 4 || length > 1<<30 {
		return 0, nil, nil, errOddMessage
	}
	whole = slices.Concat(whole, make([]byte, length-4))
	_, err = io.ReadFull(from, whole[5:])
	return whole[0], whole[5:], whole, err
}

// requestsOfMySQL passes on what a client of MySQL says, packet by packet, up to a COMMIT that is
// cut. A command begins with a packet of number 0; a prepared text counts as run.
// https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
func (c *commitConversation) requestsOfMySQL() {
	const query, prepare = 0x03, 0x16
	for {
		whole, err := readPacket(c.client)
		if err != nil {
			return
		}
		text := ""
		if number, body := whole[3], whole[4:]; number == 0 && len(body) > 0 && (body[0] == query || body[0] == prepare) {
			text = normalSQL(string(body[1:]))
		}
		if fault, struck := c.follow(text); struck {
			c.end(fault, whole)
			return
		}
		if !c.pass(whole) {
			return
		}
	}
}

// answersOfMySQL passes on what MySQL says. The answer to a COMMIT is one packet.
func (c *commitConversation) answersOfMySQL() {
	c.hear(func() (last bool, whole []byte, err error) {
		whole, err = readPacket(c.server)
		return true, whole, err
	})
}

// readPacket reads a packet of MySQL's protocol: a length of three bytes, a number, and the body.
func readPacket(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	whole := slices.Concat(head, make([]byte, length))
	_, err := io.ReadFull(from, whole[4:])
	return whole, err
}

func normalSQL(text string) string {
	return strings.ToLower(strings.Trim(strings.TrimSpace(text), ";"))
}
