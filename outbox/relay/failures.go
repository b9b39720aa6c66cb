package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/fingerprint"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

const (
	// reportEvery is how often a cause that goes on is reported.
	reportEvery = time.Minute
	// maxCauses bounds the causes of one broker that are distinguished. Further ones are summed up.
	maxCauses = 100
)

// failures reports the failures of single messages by their cause: at once when a cause is new, when
// it abandons a message for the first time, and when another one follows it; then once a minute, with
// what has happened meanwhile; and when it is over. Its methods are safe for concurrent use.
type failures struct {
	log    *slog.Logger
	broker string

	mu     sync.Mutex
	causes map[cause]*failing
	last   *failing    // noted last
	gone   []*failing  // over, and not reported yet
	timer  *time.Timer // for the next report; nil before begin
}

// cause is what failures have in common.
type cause struct {
	fingerprint string // "" for all that are not distinguished
	charged     bool   // with an outage
}

// failing is a cause that lasts.
type failing struct {
	cause
	class, text, remedy string

	since, seen time.Time
	due         time.Time // for the next report, if there is something to report
	quiet       time.Time // it is over if nothing fails until then
	fresh       counts    // since the last report
	total       counts
	example     example // the first since the last report
}

// counts are numbers of failures.
type counts struct{ failed, abandoned int }

func (c *counts) any() bool { return c.failed+c.abandoned > 0 }

func (c *counts) add(abandoned bool) {
	if abandoned {
		c.abandoned++
	} else {
		c.failed++
	}
}

// example is one message of those that a line stands for.
type example struct {
	id, eventType, destination, key string
	attempts                        int
}

// notedFailure is what befell one message.
type notedFailure struct {
	message   *driver.Message
	lastError string // as its row keeps it
	err       error  // of which it was made; nil where the relay itself refuses to send it
	charged   bool   // with an outage
	abandoned bool
	retryIn   time.Duration
}

// begin makes reports possible. They are due when the channel says so.
func (f *failures) begin() (due <-chan time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = time.NewTimer(time.Hour)
	return f.timer.C
}

// note counts a failure. It is reported by the next call of report.
func (f *failures) note(n *notedFailure) {
	var last outbox.LastError
	_ = json.Unmarshal([]byte(n.lastError), &last) // we have just encoded it
	is := cause{fingerprint.Of(f.broker, last.Class, last.Message), n.charged}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.causes[is]
	if c == nil {
		c = f.open(is, now)
		if c.fingerprint != "" {
			c.describe(&last, n.err)
		}
	}
	if n.abandoned && c.total.abandoned == 0 {
		c.due = now // worse than before
	}
	if !c.fresh.any() {
		m := n.message
		c.example = example{strings.Clone(m.MessageID), strings.Clone(m.Type), strings.Clone(m.Stream), strings.Clone(m.OrderingKey), last.Attempt}
	}
	c.fresh.add(n.abandoned)
	c.total.add(n.abandoned)
	c.seen = now
	if quiet := now.Add(n.retryIn + reportEvery); quiet.After(c.quiet) {
		c.quiet = quiet
	}
	f.last = c
}

// open begins a cause, or finds the place of those that are not distinguished. f.mu is held.
func (f *failures) open(is cause, now time.Time) *failing {
	if f.causes == nil {
		f.causes = map[cause]*failing{}
	}
	if len(f.causes) >= maxCauses && !f.makeRoom(now) {
		is = cause{}
		if c := f.causes[is]; c != nil {
			return c
		}
	}
	if f.last != nil && f.last.fresh.any() {
		f.last.due = now // a line about it comes before that about what follows
	}
	c := &failing{cause: is, since: now, due: now}
	if is.fingerprint == "" {
		c.text = "further causes, which are not distinguished"
		c.remedy = "fanout messages failures lists all causes"
	}
	f.causes[is] = c
	return c
}

// makeRoom ends the cause of which nothing was seen for longest, if that is a while.
func (f *failures) makeRoom(now time.Time) bool {
	var oldest *failing
	for _, c := range f.causes {
		if !c.fresh.any() && now.Sub(c.seen) >= reportEvery && (oldest == nil || c.seen.Before(oldest.seen)) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	f.end(oldest)
	return true
}

func (f *failures) end(c *failing) {
	delete(f.causes, c.cause)
	f.gone = append(f.gone, c)
	if f.last == c {
		f.last = nil
	}
}

// describe says what is wrong, with the remedy apart, which a log has in front.
func (c *failing) describe(last *outbox.LastError, err error) {
	c.class = last.Class
	_, c.remedy = failure.Split(err)
	c.text = strings.TrimSuffix(last.Message, ": "+c.remedy)
}

// advice is what can be done about abandoned messages, or about those that are tried again.
func (c *failing) advice(broker string, abandoned bool) string {
	advice := cmp.Or(c.remedy, "correct what the error says")
	switch {
	case c.fingerprint == "", !abandoned:
		return advice
	case c.class == outbox.ClassMalformed:
		return "correct the row in the table, then fanout messages requeue --broker " + broker + " --error-class malformed"
	case c.class == outbox.ClassExpired:
		return "see why delivery took longer than the time to live; fanout messages requeue --ttl gives a new one"
	default:
		return advice + ", then fanout messages requeue --broker " + broker + " --fingerprint " + c.fingerprint
	}
}

// What there is to do about errors of which nothing better is known.
const (
	asksBroker   = "see what the broker says"
	asksDatabase = "see what the database says"
)

// advised parts an error into what is wrong and what can be done about it, which a log has in front.
func advised(err error, otherwise string) (cause, remedy string) {
	cause, remedy = failure.Split(err)
	return cause, cmp.Or(remedy, otherwise)
}

// A report is one line of the log.
type report struct {
	failing // a copy

	over bool
}

// report writes what is due; with all also what is not due yet, as at the end.
func (f *failures) report(ctx context.Context, all bool) {
	for _, r := range f.collect(time.Now(), all) {
		f.write(ctx, &r)
	}
}

// collect takes the lines that are due, in the order of their causes, and sets the timer for the next.
func (f *failures) collect(now time.Time, all bool) (lines []report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.causes {
		if c.fresh.any() && (all || !now.Before(c.due)) {
			lines = append(lines, report{failing: *c})
			c.fresh, c.due = counts{}, now.Add(reportEvery)
		} else if !c.fresh.any() && !now.Before(c.quiet) {
			f.end(c)
		}
	}
	for _, c := range f.gone {
		lines = append(lines, report{failing: *c, over: true})
	}
	f.gone = nil
	slices.SortFunc(lines, func(a, b report) int { return a.since.Compare(b.since) })
	f.arm(now)
	return lines
}

// arm sets the timer for what is due next. f.mu is held.
func (f *failures) arm(now time.Time) {
	if f.timer == nil {
		return
	}
	f.timer.Stop()
	var next time.Time
	for _, c := range f.causes {
		at := c.quiet
		if c.fresh.any() {
			at = c.due
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if !next.IsZero() {
		f.timer.Reset(max(0, next.Sub(now)))
	}
}

func (f *failures) write(ctx context.Context, r *report) {
	switch advice := r.advice(f.broker, r.fresh.abandoned > 0); {
	case r.over:
		f.log.InfoContext(ctx, "failure over", "fingerprint", r.fingerprint, "failed", r.total.failed, "abandoned", r.total.abandoned,
			"lasted", r.seen.Sub(r.since).Round(time.Second), "class", r.class, "error", r.text)
	case r.fresh.abandoned > 0:
		f.log.ErrorContext(ctx, "message abandoned", "remedy", advice, "abandoned", r.fresh.abandoned, "failed", r.fresh.failed,
			"class", r.class, "error", r.text, "fingerprint", r.fingerprint, "message_id", r.example.id, "type", r.example.eventType,
			"destination", r.example.destination, "ordering_key", r.example.key, "attempts", r.example.attempts)
	case r.charged:
		f.log.WarnContext(ctx, "message charged with an outage", "remedy", advice, "failed", r.fresh.failed,
			"class", r.class, "error", r.text, "fingerprint", r.fingerprint, "message_id", r.example.id, "type", r.example.eventType,
			"destination", r.example.destination, "ordering_key", r.example.key, "attempts", r.example.attempts)
	default:
		f.log.WarnContext(ctx, "message failed", "remedy", advice, "failed", r.fresh.failed,
			"class", r.class, "error", r.text, "fingerprint", r.fingerprint, "message_id", r.example.id, "type", r.example.eventType,
			"destination", r.example.destination, "ordering_key", r.example.key, "attempts", r.example.attempts)
	}
}
