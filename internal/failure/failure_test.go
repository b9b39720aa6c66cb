package failure_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/failure"
)

// state is an error of PostgreSQL, number one of SQL Server.
type (
	state  string
	number int32
)

func (s state) Error() string          { return "SQLSTATE " + string(s) + " at " + time.Now().String() }
func (s state) SQLState() string       { return string(s) }
func (n number) Error() string         { return fmt.Sprint("mssql: ", int32(n)) }
func (n number) SQLErrorNumber() int32 { return int32(n) }

func TestStanding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s failure.Standing
		_, was := s.Over()
		assert.False(t, was, "nothing had failed")
		assert.False(t, s.Lasts())
		ended, readOnly := fmt.Errorf("read: %w", io.ErrUnexpectedEOF), state("25006")
		assert.True(t, s.Failed(ended), "it begins")
		assert.True(t, s.Lasts())
		assert.False(t, s.Failed(io.EOF), "another text of the same class")
		time.Sleep(24 * time.Hour)
		assert.False(t, s.Failed(ended), "however long it lasts")
		assert.True(t, s.Failed(readOnly), "the cause that stands")
		assert.False(t, s.Failed(readOnly))
		lasted, was := s.Over()
		assert.Equal(t, 24*time.Hour, lasted)
		assert.True(t, was)
		_, was = s.Over()
		assert.False(t, was)
		assert.True(t, s.Failed(readOnly), "it begins anew")
	})
}

// A class that was reported before is reported once more when it has come back to stay, and causes
// that alternate do not fill the log.
func TestStandingAlternates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s failure.Standing
		two := []error{io.EOF, state("25006")}
		began, said := time.Now(), []time.Duration(nil)
		for i := range 24 * 3600 { // a try each second, for a day
			if s.Failed(two[i%2]) {
				said = append(said, time.Since(began).Round(2*time.Second))
			}
			time.Sleep(time.Second)
		}
		want := []time.Duration{0, 2 * time.Second}
		for at, pause := failure.FirstPause, 2*failure.FirstPause; at < 24*time.Hour; at, pause = at+pause, min(2*pause, failure.LongestPause) {
			want = append(want, at)
		}
		require.Len(t, said, len(want), "%v", said)
		for i := range want {
			assert.InDelta(t, want[i], said[i], float64(time.Minute), "%d: a few seconds late each", i)
		}
		time.Sleep(failure.LongestPause)
		last := s.Failed(two[0])
		assert.True(t, last || s.Failed(two[1]), "what stands is said, be it the one or the other")
	})
}

// Calls that fail and succeed by turns are one failure: its beginning, its end and its return are said, and
// its end once more when nothing has failed for a while.
func TestStandingByTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s failure.Standing
		failed, over := 0, 0
		try := func(err error) {
			if err != nil && s.Failed(err) {
				failed++
			}
			if err == nil {
				if _, was := s.Works(); was {
					over++
				}
			}
		}
		for range 24 * 3600 { // each second, for a day
			try(io.EOF)
			time.Sleep(time.Second)
			try(nil)
		}
		assert.Equal(t, []int{2, 1}, []int{failed, over})
		assert.True(t, s.Lasts())
		try(state("25006"))
		assert.Equal(t, 3, failed, "another cause is news")
		time.Sleep(failure.FirstPause - time.Nanosecond)
		try(nil)
		assert.Equal(t, 1, over)
		time.Sleep(time.Nanosecond)
		try(nil)
		assert.Equal(t, []int{3, 2}, []int{failed, over})
		assert.False(t, s.Lasts())

		time.Sleep(failure.FirstPause)
		try(io.EOF)
		try(nil)
		assert.Equal(t, []int{4, 3}, []int{failed, over}, "what comes back later is another failure, and ends at once")
	})
}

// Texts that differ in more than is known to vary do not fill the log either.
func TestStandingOfManyClasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s failure.Standing
		said := 0
		for i := range 10_000 {
			if s.Failed(errors.New("cause " + string(rune('一'+i)))) {
				said++
			}
		}
		assert.Equal(t, failure.MaxClasses, said)
		time.Sleep(failure.FirstPause)
		assert.True(t, s.Failed(errors.New("one more")), "the last one, after a while")
		assert.False(t, s.Failed(errors.New("and another")))
	})
}

func TestClass(t *testing.T) {
	t.Parallel()
	dial := func(err error) error {
		return fmt.Errorf("connect: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5432}, Err: err})
	}
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	classes := map[string]int{}
	for _, same := range [][]error{
		{io.EOF, fmt.Errorf("x: %w", net.ErrClosed), dial(refused), syscall.ECONNRESET, state("57P01"), state("57P03"), state("08006")},
		{context.DeadlineExceeded, dial(os.ErrDeadlineExceeded)},
		{dial(&net.DNSError{Err: "no such host", Name: "a", IsNotFound: true})},
		{dial(&tls.CertificateVerificationError{Err: errors.New("unknown authority")})},
		{state("25006"), fmt.Errorf("claim: %w", state("25006"))},
		{state("42501")},
		{number(3906), fmt.Errorf("claim: %w", number(3906))},
		{number(229)},
		{failure.Advise(io.EOF, "see its log"), fmt.Errorf("publish: %w", failure.Advise(dial(refused), "see its log"))},
		{failure.Advise(state("25006"), "point at the primary"), failure.Advise(errors.New("READONLY"), "point at the primary")},
		{errors.New(`pid 4711 of 10.0.0.1:80 holds "orders"`), errors.New(`pid 5 of [::1]:81 holds "items"`)},
		{errors.New(`pid 4711 waits`)},
		{errors.New("Exception (403) Reason: \"username or password not allowed\"")},
		{errors.New("Exception (403) Reason: \"no access to the queue\"")},
	} {
		classes[failure.Class(same[0])]++
		for _, err := range same {
			assert.Equal(t, failure.Class(same[0]), failure.Class(err), "%v", err)
			assert.NotEmpty(t, failure.Class(err))
		}
	}
	for class, n := range classes {
		assert.Equal(t, 1, n, "%s: causes with other remedies", class)
	}
	assert.Empty(t, failure.Class(nil))
}

func TestSplit(t *testing.T) {
	t.Parallel()
	advised := failure.Advise(io.EOF, "see its log")
	for text, err := range map[string]error{
		"EOF|see its log":                      advised,
		"publish: EOF|see its log":             fmt.Errorf("publish: %w", advised),
		"EOF: see its log (twice)|see its log": fmt.Errorf("%w (twice)", advised),
		"EOF|":                                 io.EOF,
		"|":                                    nil,
	} {
		cause, remedy := failure.Split(err)
		assert.Equal(t, text, cause+"|"+remedy)
	}
}

func TestAdvise(t *testing.T) {
	t.Parallel()
	err := failure.Advise(io.EOF, "see its log")
	require.EqualError(t, err, "EOF: see its log")
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, io.EOF, failure.Advise(io.EOF, ""))
	assert.NoError(t, failure.Advise(nil, "nothing to do"))
}
