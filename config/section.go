package config

import (
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// section is a broker of a file, as its adapter's settings see it when they are checked.
type section struct {
	*reader

	target  *target
	cfg     *Config
	timeout time.Duration // of a publish; 0 = it was reported
	place   adapter.Place
}

var _ adapter.Section = (*section)(nil)

// Has implements adapter.Section.
func (s *section) Has(key string) bool {
	_, f := s.target.lookup(key)
	return f != nil
}

// Sound implements adapter.Section.
func (s *section) Sound(keys ...string) bool {
	for _, key := range keys {
		if in, f := s.target.lookup(key); f != nil && f.bad || f == nil && in.broken {
			return false
		}
	}
	return true
}

// Rejectf implements adapter.Section.
func (s *section) Rejectf(key, format string, args ...any) {
	in, f := s.target.lookup(key)
	switch {
	case f == nil:
		s.problemf(in.at, strings.TrimSuffix(join(s.target.path, key), "."), format, args...)
	case !f.bad:
		s.rejectf(f, format, args...)
	}
}

// Removef implements adapter.Section.
func (s *section) Removef(key, format string, args ...any) {
	if _, f := s.target.lookup(key); f != nil && !f.bad {
		f.bad = true
		s.problemf(f.key, f.path, format, args...)
	}
}

// Require implements adapter.Section.
func (s *section) Require(key, example string) bool {
	in, f := s.target.lookup(key)
	if f == nil && !in.broken {
		name := key
		if in != s.target.object {
			name = key[len(in.path)-len(s.target.path):]
		}
		s.problemf(in.at, in.path, "%s is missing: use %s", name, example)
	}
	return f != nil
}

// Warnf implements adapter.Section.
func (s *section) Warnf(key, format string, args ...any) {
	at, path := s.target.at, join(s.target.path, key)
	if _, f := s.target.lookup(key); f != nil {
		at, path = f.at, f.path
	}
	s.warnf(at, path, format, args...)
}

// Place implements adapter.Section.
func (s *section) Place(place adapter.Place) { s.place = place }

// Internal implements adapter.Section.
func (s *section) Internal() bool { return s.target.name == s.cfg.Outbox.InternalBroker }

// PublishTimeout implements adapter.Section.
func (s *section) PublishTimeout() time.Duration { return s.timeout }
