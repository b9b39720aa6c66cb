package rabbitmq

import (
	"context"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A session is one connection with its channels, each of which is one caller's at a time.
type session struct {
	conn *amqp.Connection
	raw  net.Conn

	mu      sync.Mutex
	idle    []*channel
	alarm   *alarm // nil = the server takes messages
	running map[*publication]context.CancelCauseFunc
}

// An alarm is the server's word (connection.blocked) that it reads no further message on the
// connection until it has memory or disk space again. It says so when it has got one.
type alarm struct{ reason string }

func (a *alarm) Error() string { return "the server takes no messages: " + a.reason }

// A channel in confirm mode. What the server returns is in returns before the client library learns
// that it was confirmed, since one goroutine of the library handles both, in the order in which they
// come. As returns holds a whole window that goroutine never waits, and nothing has to receive
// meanwhile.
type channel struct {
	*amqp.Channel

	returns chan amqp.Return
	closed  chan *amqp.Error // why the channel, or its connection, was closed
}

func newSession(conn *amqp.Connection, raw net.Conn) *session {
	s := &session{conn: conn, raw: raw, running: map[*publication]context.CancelCauseFunc{}}
	go s.follow(conn.NotifyBlocked(make(chan amqp.Blocking, 1)))
	return s
}

// follow notes when the server blocks the connection, and when it does no longer, and ends with the
// connection.
func (s *session) follow(changes <-chan amqp.Blocking) {
	for change := range changes {
		s.mu.Lock()
		s.alarm = nil
		if change.Active {
			s.alarm = &alarm{change.Reason}
			for _, cancel := range s.running {
				cancel(s.alarm)
			}
		}
		s.mu.Unlock()
	}
}

// enter has an alarm end a publication, until leave.
func (s *session) enter(p *publication, cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[p] = cancel
	if s.alarm != nil {
		cancel(s.alarm)
	}
}

func (s *session) leave(p *publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, p)
}

// acquire returns an idle channel, or opens one.
func (s *session) acquire(ctx context.Context) (*channel, error) {
	if c, err := s.takeIdle(); c != nil || err != nil {
		return c, err
	}
	type answer struct {
		channel *channel
		err     error
	}
	opened := make(chan answer)
	go func() { // the library's call knows no context
		c, err := s.open()
		select {
		case opened <- answer{c, err}:
		case <-ctx.Done():
			if err == nil {
				s.release(c)
			}
		}
	}()
	select {
	case a := <-opened:
		return a.channel, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *session) takeIdle() (*channel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm != nil {
		return nil, s.alarm
	}
	for n := len(s.idle); n > 0; n = len(s.idle) {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		if !c.IsClosed() {
			return c, nil
		}
	}
	return nil, nil //nolint:nilnil // no channel is idle
}

func (s *session) open() (*channel, error) {
	opened, err := s.conn.Channel()
	if err != nil {
		return nil, err
	}
	c := &channel{
		Channel: opened,
		returns: opened.NotifyReturn(make(chan amqp.Return, window)),
		closed:  opened.NotifyClose(make(chan *amqp.Error, 1)),
	}
	return c, c.Confirm(false)
}

// release keeps a channel, on which nothing is in progress, for the next caller.
func (s *session) release(c *channel) {
	if c.IsClosed() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, c)
}

// abandon closes a channel on which messages are unconfirmed. It does not wait for the server's
// answer: it comes, or the connection ends.
func (s *session) abandon(c *channel) {
	go func() { _ = c.Close() }()
}

// ask puts a question to the server, and waits for the answer until ctx ends.
func (s *session) ask(ctx context.Context, question func(*channel) error) error {
	c, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() {
		err := question(c)
		s.release(c)
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cut ends the connection without a word, and with it whatever waits for it.
func (s *session) cut() { _ = s.raw.Close() }

// close says goodbye to the server, until the deadline. Whether it answers makes no difference: the
// connection is closed.
func (s *session) close(deadline time.Time) {
	_ = s.conn.CloseDeadline(deadline)
	s.cut()
}
