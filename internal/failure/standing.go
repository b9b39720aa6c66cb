// Package failure decides when a failure that lasts is reported, and what two failures have in
// common. A caller reports what [Standing.Failed] calls news, and the end of what was reported.
package failure

import (
	"sync"
	"time"
)

const (
	// FirstPause is the time until a class of causes that was reported before is reported once more.
	// The pause doubles with each such report.
	FirstPause = time.Minute
	// LongestPause is what the pause grows to.
	LongestPause = time.Hour
	// MaxClasses is how many classes of causes one failure has that are reported without a pause.
	MaxClasses = 16
)

// A Standing is a failure that lasts, such as a database that does not answer. The first cause that
// is noted is rarely the one that stands: a server that becomes read-only ends the connections
// first. So a cause is news at the beginning, and again when its class (see [Class]) is another one
// than what was reported last. Causes that alternate do not fill a log: only the first MaxClasses
// new classes are news at once; one that was reported before, or is beyond them, waits for the
// pause. The zero value is one that has not begun. All methods are safe for concurrent use.
type Standing struct {
	mu       sync.Mutex
	since    time.Time // zero: nothing fails
	reported map[string]bool
	class    string        // of the last cause
	last     string        // the class of the last report
	again    time.Time     // when a class that was reported before may be reported once more
	pause    time.Duration // until that, the next time
	failed   time.Time     // the last time
	ended    time.Time     // by Works, the last time
	returned bool          // it has come back within FirstPause of that
}

// Failed notes a failure and reports whether that is news.
func (s *Standing) Failed(err error) (news bool) {
	class := Class(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.class = class
	now := time.Now()
	s.failed = now
	if s.since.IsZero() {
		s.returned = !s.ended.IsZero() && now.Sub(s.ended) < FirstPause
		s.since, s.reported, s.pause, s.again = now, map[string]bool{}, FirstPause, now.Add(FirstPause)
		s.reported[class], s.last = true, class
		return true
	}
	switch {
	case class == s.last:
		return false
	case !s.reported[class] && len(s.reported) < MaxClasses:
		s.reported[class] = true
	case now.Before(s.again):
		return false
	default:
		s.pause = min(2*s.pause, LongestPause)
		s.again = now.Add(s.pause)
	}
	s.last = class
	return true
}

// Works is Over for calls that are made again and again and each of which tells. Calls that fail and
// succeed by turns, since some connections are refused and others are not, are one failure: what has
// come back within FirstPause of its end is over when it has not failed for FirstPause.
func (s *Standing) Works() (lasted time.Duration, was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.works()
}

func (s *Standing) works() (lasted time.Duration, was bool) {
	now := time.Now()
	if s.since.IsZero() || s.returned && now.Sub(s.failed) < FirstPause {
		return 0, false
	}
	s.ended = now
	return s.over()
}

// Over notes that what had failed works again. lasted is how long it had not; was is false where
// nothing had failed.
func (s *Standing) Over() (lasted time.Duration, was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over()
}

// Reached notes that the other side answers, although what had failed was not tried again: it is over
// where the last cause was that the other side could not be reached.
func (s *Standing) Reached() (lasted time.Duration, was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.class {
	case ClassConnection, ClassNoAnswer, ClassName, ClassCertificate:
		return s.works()
	}
	return 0, false
}

func (s *Standing) over() (lasted time.Duration, was bool) {
	if s.since.IsZero() {
		return 0, false
	}
	lasted, was = time.Since(s.since), true
	s.since, s.reported, s.last = time.Time{}, nil, ""
	return lasted, was
}

// Lasts reports whether something has failed and is not over.
func (s *Standing) Lasts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero()
}
