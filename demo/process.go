package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// stopPatience is how long the consumer's process may take to stop when it is asked to.
const stopPatience = 15 * time.Second

// projector is the consumer, in a process of its own that is killed and replaced.
type projector struct {
	cfg     consumerConfig
	reports reports
	kills   int

	cmd   *exec.Cmd
	stdin io.Closer
	said  *tail
	began int           // deliveries when this process was started
	done  chan struct{} // closed when it has ended and err is set
	err   error
}

// start starts the process: this very program, which consumerMain makes another one.
func (p *projector) start(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it again as the consumer: %w", err)
	}
	encoded, err := json.Marshal(p.cfg)
	if err != nil {
		return err
	}
	p.began, _ = p.reports.numbers()
	p.reports.forget()
	said := &tail{}
	cmd := exec.CommandContext(ctx, program) //nolint:gosec // which is this one, and is killed when the context ends
	cmd.Env = append(os.Environ(), consumerVariable+"="+string(encoded))
	cmd.Stdout, cmd.Stderr = &p.reports, said
	cmd.WaitDelay = stopPatience
	stdin, err := cmd.StdinPipe() // it ends when this is closed, by us or by our end
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the consumer's process: %w", err)
	}
	done := make(chan struct{})
	p.cmd, p.stdin, p.said, p.done = cmd, stdin, said, done
	go func() {
		p.err = cmd.Wait()
		close(done)
	}()
	return nil
}

// working reports whether the process has got its first message.
func (p *projector) working() bool {
	delivered, _ := p.reports.numbers()
	return delivered > p.began
}

// ended returns an error where the process has ended by itself, which it must not.
func (p *projector) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("the consumer's process has ended by itself: %w\n%s", orNil(p.err), p.said.String())
	default:
		return nil
	}
}

func orNil(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// kill ends the process at once, whatever it is doing: SIGKILL, and what other systems have in its
// place.
func (p *projector) kill() error {
	if err := p.ended(); err != nil {
		return err
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the consumer's process: %w", err)
	}
	<-p.done
	p.kills++
	return nil
}

// stop asks the process to end, and waits for it.
func (p *projector) stop() error {
	if err := p.ended(); err != nil {
		return err
	}
	_ = p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("the consumer's process did not stop within %s\n%s", stopPatience, p.said.String())
	}
	if p.err != nil {
		return fmt.Errorf("the consumer's process did not stop well: %w\n%s", p.err, p.said.String())
	}
	return nil
}

// close leaves no process behind.
func (p *projector) close() {
	if p.done == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// reports counts what the consumer's processes tell. It is safe for concurrent use.
type reports struct {
	mu                    sync.Mutex
	rest                  []byte
	delivered, duplicates int
}

// Write implements io.Writer.
func (r *reports) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, text...)
	for {
		line, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			r.rest = line
			return len(text), nil
		}
		r.rest = rest
		switch string(line) {
		case reportDelivered:
			r.delivered++
		case reportDuplicate:
			r.duplicates++
		}
	}
}

// forget drops the line that a process did not live to finish.
func (r *reports) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = nil
}

func (r *reports) numbers() (delivered, duplicates int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.delivered, r.duplicates
}

// tail keeps the end of what a process writes to its standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailLength = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-tailLength):]
	return len(text), nil
}

// String returns whole lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
