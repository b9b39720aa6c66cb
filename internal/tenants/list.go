package tenants

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/failure"
)

// listing is what is remembered of the source.
type listing struct {
	failing failure.Standing
	refused map[string]string // entries that were reported, and why
}

// refresh asks the source, and adds and removes tenants.
func (s *Supervisor[T]) refresh(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	list, err := s.cfg.List(bounded)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil: // it is not known that there are none
		if s.listed.failing.Failed(err) {
			cause, remedy := s.cfg.Remedy(err)
			s.cfg.Log.ErrorContext(ctx, "tenants not listed", "effect", "the last list stays in force", "remedy", remedy, "error", cause)
		}
		return
	}
	if _, was := s.listed.failing.Works(); was {
		s.cfg.Log.InfoContext(ctx, "tenants listed again", "tenants", len(list.Tenants))
	}
	s.refuse(ctx, list.Refused)
	s.apply(ctx, list)
}

// refuse reports entries that are wrong, each once for each fault.
func (s *Supervisor[T]) refuse(ctx context.Context, refused map[string]error) {
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		cause, remedy := s.cfg.Remedy(refused[name])
		if s.listed.refused[name] != cause {
			s.listed.refused[name] = cause
			s.cfg.Log.ErrorContext(ctx, "tenant entry refused", "tenant", name, "effect", "the tenant stays as it was", "remedy", remedy, "error", cause)
		}
	}
	maps.DeleteFunc(s.listed.refused, func(name, _ string) bool { return refused[name] == nil })
}

// apply makes the tenants those of a list.
func (s *Supervisor[T]) apply(ctx context.Context, list Listing[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.tenants)
	s.removeUnlisted(ctx, list)
	s.add(ctx, list, before == 0)
	if before == 0 && len(s.tenants) > 0 {
		s.cfg.Log.InfoContext(ctx, "tenants found", "tenants", len(s.tenants))
	}
	s.announce()
}

// removeUnlisted closes the tenants that are not in a list.
func (s *Supervisor[T]) removeUnlisted(ctx context.Context, list Listing[T]) {
	removed := 0
	for name, t := range s.tenants {
		_, listed := list.Tenants[name]
		if _, refused := list.Refused[name]; listed || refused {
			continue
		}
		if !t.gone || t.next != nil {
			removed++
			s.cfg.Log.InfoContext(ctx, "tenant removed", "tenant", name)
		}
		t.next = nil
		s.remove(t)
	}
	if removed > 0 && len(list.Tenants) == 0 {
		s.cfg.Log.WarnContext(ctx, "all tenants removed", "tenants", removed, "effect", "the rows stay in their databases",
			"remedy", "if they are still there, look at the file or the query of the tenants")
	}
}

// add makes those that are new, and replaces those whose settings differ. The first list is no news.
func (s *Supervisor[T]) add(ctx context.Context, list Listing[T], first bool) {
	for _, name := range slices.Sorted(maps.Keys(list.Tenants)) {
		settings := list.Tenants[name]
		switch t, ok := s.tenants[name]; {
		case !ok:
			s.tenants[name] = s.newTenant(name, settings)
			if !first {
				s.cfg.Log.InfoContext(ctx, "tenant added", "tenant", name)
			}
		case !t.gone && t.settings == settings, t.next != nil && t.next.settings == settings:
		default:
			if !t.gone {
				s.cfg.Log.InfoContext(ctx, "tenant changed", "tenant", name)
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

// remove has a tenant closed, and forgotten or replaced when that has happened.
func (s *Supervisor[T]) remove(t *tenant[T]) {
	if t.gone {
		return
	}
	t.gone = true
	if t.cancel != nil { // what it is doing
		t.cancel()
	}
	t.due = time.Now()
}
