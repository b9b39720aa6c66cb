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
	return s.tenants[name] != nil
}

// apply makes the tenants those of a list. What happened is logged when the lock is free: a log may take
// long, or ask for the tenants itself, and who commits rows waits for the lock. The first list is no news.
func (s *Supervisor[T]) apply(ctx context.Context, list Listing[T]) {
	var removed, added, changed []string
	s.mu.Lock()
	before := len(s.tenants)
	for name, t := range s.tenants {
		if _, listed := list.Tenants[name]; !listed && list.Refused[name] == nil {
			s.stop(t)
			removed = append(removed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list.Tenants)) {
		switch t := s.tenants[name]; {
		case t == nil:
			added = append(added, name)
			s.start(ctx, name, list.Tenants[name])
		case t.settings != list.Tenants[name]:
			changed = append(changed, name)
			s.stop(t)
			s.start(ctx, name, list.Tenants[name])
		}
	}
	s.mu.Unlock()
	if before == 0 && len(added) > 0 {
		s.cfg.Log.InfoContext(ctx, "tenants found", "tenants", len(added))
		added = nil
	}
	for _, name := range removed {
		s.cfg.Log.InfoContext(ctx, "tenant removed", "tenant", name)
	}
	for _, name := range added {
		s.cfg.Log.InfoContext(ctx, "tenant added", "tenant", name)
	}
	for _, name := range changed {
		s.cfg.Log.InfoContext(ctx, "tenant changed", "tenant", name)
	}
	if len(removed) > 0 && len(list.Tenants) == 0 {
		s.cfg.Log.WarnContext(ctx, "all tenants removed", "tenants", len(removed), "effect", "the rows stay in their databases",
			"remedy", "if they are still there, look at the list of the tenants")
	}
}

// start begins to keep a tenant, which is visited as soon as there is a place. Who had the name before ends
// first, so that no rows have two sets of workers.
func (s *Supervisor[T]) start(ctx context.Context, name string, settings T) {
	before := s.ending[name]
	s.count++
	ctx, cancel := context.WithCancel(ctx)
	t := &tenant[T]{name: name, settings: settings, phase: phase(s.count), cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	t.purge = time.Now().Add(time.Duration(t.phase * float64(s.cfg.PurgeEvery)))
	s.tenants[name] = t
	s.group.Go(func() {
		defer cancel()
		s.keep(ctx, t, before)
	})
}

// stop has a tenant end what it does.
func (s *Supervisor[T]) stop(t *tenant[T]) {
	t.cancel()
	delete(s.tenants, t.name)
	s.ending[t.name] = t
}
