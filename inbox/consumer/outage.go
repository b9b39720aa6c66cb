package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/failure"
)

// An Outage logs that a broker is out, again when the class of the cause changes, and once that it
// is there again. The zero value is that of a broker of which nothing is known yet; Log has to be
// set. It is safe for concurrent use.
type Outage struct {
	Log *slog.Logger
	// Steady is how long nothing must have failed before it is over. Default: 0, the first answer ends it.
	// A client with several connections has answers on one while another is still out.
	Steady time.Duration

	mu       sync.Mutex
	standing failure.Standing
	failures int
	last     time.Time // failure
}

// pauses between attempts to reach a broker.
var pauses = inbox.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: 5 * time.Second}

// PauseAfter is the pause after the n-th failure in a row of something that is done at the broker.
func PauseAfter(n int) time.Duration { return pauses.Delay(n) }

// Failed notes an attempt that failed, and returns how long to wait before the next one.
func (o *Outage) Failed(ctx context.Context, err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures++
	o.last = time.Now()
	if o.standing.Failed(err) {
		o.Log.WarnContext(ctx, "broker unavailable", "error", err)
	}
	return PauseAfter(o.failures)
}

// Over notes that the broker has answered.
func (o *Outage) Over(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.last) < o.Steady {
		return
	}
	if lasted, was := o.standing.Over(); was {
		o.Log.InfoContext(ctx, "broker available again", "after", lasted)
	}
	o.failures = 0
}

// Lasts reports whether the broker is out, as far as is known.
func (o *Outage) Lasts() bool { return o.standing.Lasts() }

// Outages are those of a broker of which a part can be out, such as one of several servers, or what a user
// has no right to. Log has to be set. They are safe for concurrent use.
type Outages struct {
	Log *slog.Logger

	mu    sync.Mutex
	parts map[string]*part
}

type part struct {
	Outage

	since    time.Time // of the first failure, which need not be reported
	doubtful bool      // whether there is an outage: a connection that breaks, and a next one that does not, is none
}

// Failed notes that something has failed, of the named part. What is not certain to be an outage is reported
// when it fails again. attrs are for the lines of the log, as the first failure has them.
func (o *Outages) Failed(ctx context.Context, name string, certain bool, err error, attrs ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.parts[name]
	if one == nil {
		one = &part{Outage: Outage{Log: o.Log.With(attrs...)}, since: time.Now(), doubtful: !certain}
		if o.parts == nil {
			o.parts = map[string]*part{}
		}
		o.parts[name] = one
		if one.doubtful {
			return
		}
	}
	one.Failed(ctx, err)
}

// Over notes that something has succeeded that was begun then, of the named parts. What was begun before an
// outage says nothing about its end.
func (o *Outages) Over(ctx context.Context, begun time.Time, names ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.parts) == 0 {
		return
	}
	for _, name := range names {
		if one := o.parts[name]; one != nil && !begun.Before(one.since) {
			delete(o.parts, name)
			one.Over(ctx)
		}
	}
}
