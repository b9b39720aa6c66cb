package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/failure"
)

// listing is what is remembered of the source.
type listing struct {
	failing failure.Standing
	refused map[string]string // entries that were reported, and why
	once    bool              // it was read at least once
}

// refresh asks the source, and adds and removes tenants.
func (s *Supervisor[T]) refresh(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	list, err := s.ask(bounded)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil: // it is not known that there are none
		if s.listed.failing.Failed(err) {
			cause, remedy := s.cfg.Remedy("", err)
			effect := "no tenant is served until they can be listed"
			if s.listed.once {
				effect = "the last list stays in force"
			}
			s.cfg.Log.ErrorContext(ctx, "tenants not listed", "effect", effect,
				"remedy", cmp.Or(remedy, "correct what the error names; the list is read again every "+s.cfg.Every.String()), "error", cause)
			if panicked := new(panicError); errors.As(err, &panicked) {
				s.cfg.Log.ErrorContext(ctx, "panic survived", "doing", "list the tenants", "error", cause, "stack", panicked.stack)
			}
		}
		return
	}
	if _, was := s.listed.failing.Works(); was {
		s.cfg.Log.InfoContext(ctx, "tenants listed again", "tenants", len(list.Tenants))
	}
	s.listed.once = true
	s.refuse(ctx, list)
	s.apply(ctx, list)
}

// panicError is a source that panicked, which may be a function of the application. It does not quote
// the value, which may hold a connection string.
type panicError struct {
	kind  any
	stack string
}

func (e *panicError) Error() string {
	return fmt.Sprintf("the function that lists the tenants panicked, with a %T", e.kind)
}

// ask asks the source, and survives it.
func (s *Supervisor[T]) ask(ctx context.Context) (list Listing[T], err error) {
	defer func() {
		if kind := recover(); kind != nil {
			err = &panicError{kind: kind, stack: string(debug.Stack())}
		}
	}()
	return s.cfg.List(ctx)
}

// refuse reports entries that are wrong, each once for each fault, and those that are right again.
func (s *Supervisor[T]) refuse(ctx context.Context, list Listing[T]) {
	for _, name := range slices.Sorted(maps.Keys(list.Refused)) {
		cause, remedy := s.cfg.Remedy("", list.Refused[name])
		if s.listed.refused[name] == cause {
			continue
		}
		s.listed.refused[name] = cause
		effect := "it is not served"
		if s.serves(name) {
			effect = "it is served with its former settings"
		}
		s.cfg.Log.ErrorContext(ctx, "tenant entry refused", "tenant", name, "effect", effect, "remedy", cmp.Or(remedy, "correct the entry"), "error", cause)
	}
	for _, name := range slices.Sorted(maps.Keys(s.listed.refused)) {
		if list.Refused[name] != nil {
			continue
		}
		delete(s.listed.refused, name)
		if _, listed := list.Tenants[name]; listed {
			s.cfg.Log.InfoContext(ctx, "tenant entry accepted", "tenant", name)
		}
	}
}

// serves reports whether a tenant has settings that are in force.
func (s *Supervisor[T]) serves(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tenants[name]
	return ok && (!t.gone || t.next != nil)
}

// news are lines of the log. They are written when the lock is free: a log may take long, or ask for the
// tenants itself, and who commits rows waits for the lock.
type news []func()

func (n *news) add(line func()) { *n = append(*n, line) }

func (n *news) write() {
	for _, line := range *n {
		line()
	}
}

// apply makes the tenants those of a list.
func (s *Supervisor[T]) apply(ctx context.Context, list Listing[T]) {
	var lines news
	s.mu.Lock()
	before := len(s.tenants)
	s.removeUnlisted(ctx, list, &lines)
	s.add(ctx, list, before == 0, &lines)
	if now := len(s.tenants); before == 0 && now > 0 {
		lines.add(func() { s.cfg.Log.InfoContext(ctx, "tenants found", "tenants", now) })
	}
	s.mu.Unlock()
	lines.write()
	s.announce()
}

// removeUnlisted closes the tenants that are not in a list.
func (s *Supervisor[T]) removeUnlisted(ctx context.Context, list Listing[T], lines *news) {
	removed := 0
	for name, t := range s.tenants {
		_, listed := list.Tenants[name]
		if _, refused := list.Refused[name]; listed || refused {
			continue
		}
		if !t.gone || t.next != nil {
			removed++
			lines.add(func() { s.cfg.Log.InfoContext(ctx, "tenant removed", "tenant", name) })
		}
		t.next = nil
		s.remove(t)
	}
	if removed > 0 && len(list.Tenants) == 0 {
		lines.add(func() {
			s.cfg.Log.WarnContext(ctx, "all tenants removed", "tenants", removed, "effect", "the rows stay in their databases",
				"remedy", "if they are still there, look at the list of the tenants")
		})
	}
}

// add makes those that are new, and replaces those whose settings differ. The first list is no news.
func (s *Supervisor[T]) add(ctx context.Context, list Listing[T], first bool, lines *news) {
	for _, name := range slices.Sorted(maps.Keys(list.Tenants)) {
		settings := list.Tenants[name]
		switch t, ok := s.tenants[name]; {
		case !ok:
			s.tenants[name] = s.newTenant(name, settings)
			if !first {
				lines.add(func() { s.cfg.Log.InfoContext(ctx, "tenant added", "tenant", name) })
			}
		case !t.gone && t.settings == settings, t.next != nil && t.next.settings == settings:
		default:
			if !t.gone {
				lines.add(func() { s.cfg.Log.InfoContext(ctx, "tenant changed", "tenant", name) })
			}
			t.next = s.newTenant(name, settings)
			s.remove(t)
		}
	}
}

// newTenant is one that is visited as soon as there is a place.
func (s *Supervisor[T]) newTenant(name string, settings T) *tenant[T] {
	s.count++
	t := &tenant[T]{name: name, settings: settings, phase: phase(s.count), due: time.Now()}
	t.purge = t.due.Add(time.Duration(t.phase * float64(s.cfg.PurgeEvery)))
	return t
}

// remove has a tenant closed, and forgotten or replaced when that has happened: at once where it does
// nothing and has no heartbeat that is to be taken back, or a database that does not answer.
func (s *Supervisor[T]) remove(t *tenant[T]) {
	switch {
	case t.state == idle && (t.beat.IsZero() || t.failures > 0):
		s.forget(t)
	case !t.gone:
		t.gone = true
		if t.cancel != nil { // what it is doing
			t.cancel()
		}
		t.due = time.Now()
	}
}

// forget drops a tenant that is idle, or replaces it.
func (s *Supervisor[T]) forget(t *tenant[T]) {
	delete(s.tenants, t.name)
	if t.next != nil {
		s.tenants[t.name] = t.next
	}
}
