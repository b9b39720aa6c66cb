//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tty is a terminal: what a program prints on its side, the test reads on the other, and the other
// way round.
type tty struct {
	ours, theirs *os.File

	mu   sync.Mutex
	seen bytes.Buffer
	done chan struct{}
}

func newTTY(t *testing.T) *tty {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	var unlock, number int32
	raw, err := ours.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		_, _, locked := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock)))
		_, _, unnamed := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPTN, uintptr(unsafe.Pointer(&number)))
		require.Zero(t, locked)
		require.Zero(t, unnamed)
	}))
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	tty := &tty{ours: ours, theirs: theirs, done: make(chan struct{})}
	go func() {
		defer close(tty.done)
		buffer := make([]byte, 4096)
		for {
			n, err := ours.Read(buffer)
			tty.mu.Lock()
			tty.seen.Write(buffer[:n])
			tty.mu.Unlock()
			if err != nil { // the other side is closed
				return
			}
		}
	}()
	return tty
}

// close ends the terminal and returns what was on it.
func (t *tty) close() string {
	_ = t.theirs.Close()
	<-t.done
	_ = t.ours.Close()
	return t.seen.String()
}

// on runs a command on a terminal, with answers typed in.
func (s *shop) on(answer string, args ...string) (code int, screen string) {
	s.Helper()
	tty := newTTY(s.T)
	_, err := tty.ours.WriteString(answer)
	require.NoError(s, err)
	code = run(context.Background(), append(args, "--config", s.config), tty.theirs, tty.theirs, tty.theirs)
	return code, tty.close()
}

// TestTerminal is not parallel: it sets the environment.
func TestTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	s := newShop(t, "sqlite", t.TempDir()+"/outbox.db")
	s.badNight()
	_, screen := s.on("", "status")
	assert.Contains(t, screen, "\x1b[31m3\x1b[0m", "abandoned rows are red")
	t.Setenv("NO_COLOR", "1")
	_, screen = s.on("", "status")
	assert.NotContains(t, screen, "\x1b")

	for n := range 101 {
		s.write(100+n, "T", fmt.Sprint("k", n), "default")
	}
	args := []string{"messages", "abandon", "--broker", "default"}
	code, screen := s.on("n\n", args...)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, screen, "Abandon 101 messages of broker default in database main? [y/N]")
	assert.Contains(t, screen, "nothing was changed")
	assert.Equal(t, 101, s.count("target_broker = 'default' AND status = 'pending'"))
	code, screen = s.on("y\n", args...)
	assert.Zero(t, code, screen)
	assert.Contains(t, screen, "main: 101 rows abandoned")
	assert.Zero(t, s.count("target_broker = 'default' AND status = 'pending'"))
}
