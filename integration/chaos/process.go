//go:build unix

package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/worker"
	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const (
	// endPatience is how long a process may take to end after SIGTERM.
	endPatience = 45 * time.Second
	// againPause precedes the restart of a process that could not do its work.
	againPause = 300 * time.Millisecond
	// terminated is the exit code of a process that SIGTERM ended before it handled signals.
	terminated = 128 + int(syscall.SIGTERM)
)

// process is one member of the cluster. Its process of the operating system is replaced when it
// dies.
type process struct {
	name    string
	dir     string
	program func(skew time.Duration) string // which of the programs
	environ []string
	seed    uint64 // of what it does; each start adds one

	mu      sync.Mutex
	child   *child.Child
	cmd     *exec.Cmd
	skew    time.Duration
	pause   time.Duration  // before the next start
	asked   syscall.Signal // with which it was stopped; 0 = it was not
	closing bool           // it is not restarted
	over    chan struct{}

	starts  []startedAt
	away    int      // how often it exited because a server was unavailable
	crashed []string // other exits
	peak    int64    // bytes
}

// startedAt is what is known of a start.
type startedAt struct {
	at   time.Time
	skew time.Duration
}

// run restarts the process until close. A failed start is an error, everything else is recorded.
func (p *process) run(ctx context.Context) error {
	p.over = make(chan struct{})
	if err := p.start(ctx); err != nil {
		return err
	}
	go func() {
		defer close(p.over)
		for p.next(ctx) {
			if err := p.start(ctx); err != nil {
				p.crash(err.Error())
				return
			}
		}
	}()
	return nil
}

func (p *process) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.path("log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), p.program(p.skew))
	p.cmd.Env = append(append(os.Environ(), p.environ...), fmt.Sprintf("%s=%d", worker.SkewVariable, int(p.skew.Seconds())),
		worker.NameVariable+"="+p.name, worker.LedgerVariable+"="+p.path("ledger"), fmt.Sprintf("%s=%d", worker.SeedVariable, p.seed+uint64(len(p.starts))))
	p.cmd.Stderr = log
	if _, err := p.cmd.StdinPipe(); err != nil { // the process exits when this is closed
		return err
	}
	p.asked = 0
	p.starts = append(p.starts, startedAt{time.Now(), p.skew})
	p.child, err = child.Start(p.cmd)
	return err
}

// next waits for the exit of the running process and reports whether to restart it.
func (p *process) next(ctx context.Context) bool {
	<-p.child.Done()
	p.mu.Lock()
	usage, _ := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if usage != nil && p.peak == 0 {
		p.peak = usage.Maxrss * maxrssUnit
	}
	code, pause := p.child.ExitCode(), p.pause
	switch {
	case p.asked == syscall.SIGKILL, p.asked == syscall.SIGTERM && (code == 0 || code == terminated):
	case code == worker.ExitCannot:
		p.away++
		pause = againPause
	default:
		p.crashed = append(p.crashed, fmt.Sprintf("%s ended with exit code %d; the end of its log: %s", p.name, code, p.tail()))
		pause = againPause
	}
	closing := p.closing
	p.mu.Unlock()
	if closing {
		return false
	}
	pauseFor(ctx, pause)
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closing && ctx.Err() == nil
}

// end stops the running process; after a pause it is restarted with its clock off by skew.
func (p *process) end(signal syscall.Signal, pause, skew time.Duration) {
	p.mu.Lock()
	p.asked, p.pause, p.skew = signal, pause, skew
	running := p.child
	p.mu.Unlock()
	if signal == syscall.SIGKILL {
		_ = running.Signal(signal)
		return
	}
	if err := running.Stop(child.Step{Signal: signal, Patience: endPatience}); err != nil {
		p.crash(fmt.Sprintf("%s did not end within %s of %s", p.name, endPatience, signal))
		_ = running.Signal(syscall.SIGKILL)
	}
}

// hold suspends the process for a while; meanwhile is called as soon as it is.
func (p *process) hold(ctx context.Context, d time.Duration, meanwhile func()) {
	p.mu.Lock()
	running := p.child
	p.mu.Unlock()
	_ = running.Signal(syscall.SIGSTOP)
	meanwhile()
	pauseFor(ctx, d)
	_ = running.Signal(syscall.SIGCONT)
}

// close stops the process and does not restart it.
func (p *process) close() {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.end(syscall.SIGTERM, 0, 0)
	<-p.over
}

// weigh records the memory of the running process.
func (p *process) weigh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peak = max(p.peak, peakMemory(p.child.Pid()))
}

func (p *process) crash(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashed = append(p.crashed, how)
}

func (p *process) path(what string) string { return filepath.Join(p.dir, p.name+"."+what) }

// tail is the end of the log.
func (p *process) tail() string {
	const most = 2000
	file, err := os.Open(p.path("log"))
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > most {
		_, _ = file.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(file)
	return string(text)
}

// pauseFor waits for d, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
