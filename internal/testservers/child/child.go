// Package child runs processes that do not outlive this one.
//
// A child leads a process group of its own, so that a Ctrl-C in the terminal reaches us alone. On Linux
// the kernel ends the child even when this process is killed with SIGKILL.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Child is a process. Its methods may be called from several goroutines.
type Child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // what Wait returned; written before done is closed
}

// Step is one attempt of [Child.Stop]: a signal, and how long to wait for the process to end after
// it.
type Step struct {
	Signal   os.Signal
	Patience time.Duration
}

// errStillRunning is returned by Stop for a process that not even SIGKILL ended.
var errStillRunning = errors.New("still running after the last signal")

// Start starts cmd and returns when the process runs. It sets the process group and, on Linux, the
// signal that the kernel sends when this process dies; other fields of cmd.SysProcAttr are kept.
func Start(cmd *exec.Cmd) (*Child, error) {
	dieWithParent(cmd)
	c := &Child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel takes the end of the *thread* that started a child for the parent's death, and
		// the Go runtime ends threads when it likes. So this goroutine keeps its thread for itself
		// until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("child: start %s: %w", cmd.Path, err)
	}
	return c, nil
}

// Done is closed when the process has ended and was waited for.
func (c *Child) Done() <-chan struct{} { return c.done }

// Pid is the process id, also the id of the child's process group.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Wait waits for the end of the process and returns what [exec.Cmd.Wait] returned.
func (c *Child) Wait() error {
	<-c.done
	return c.err
}

// ExitCode waits for the end of the process and returns its code, 128 + n where signal n ended it.
func (c *Child) ExitCode() int {
	<-c.done
	return exitCode(c.cmd.ProcessState)
}

// Signal sends a signal to the child and its process group. A child that has ended already is not
// an error.
func (c *Child) Signal(signal os.Signal) error {
	select {
	case <-c.done: // its id may belong to another process by now
		return nil
	default:
	}
	if err := signalGroup(c.cmd.Process, signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("child: send %v to %s: %w", signal, c.cmd.Path, err)
	}
	return nil
}

// Stop sends the signals of steps, one after the other, until the process ends. It returns an error
// only when the process is still there after all of them.
func (c *Child) Stop(steps ...Step) error {
	for _, step := range steps {
		if err := c.Signal(step.Signal); err != nil {
			return err
		}
		select {
		case <-c.done:
			return nil
		case <-time.After(step.Patience):
		}
	}
	return fmt.Errorf("child: stop %s (pid %d): %w", c.cmd.Path, c.Pid(), errStillRunning)
}
