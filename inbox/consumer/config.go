package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// grace is for what has to end after the shutdown timeout.
const grace = 10 * time.Second

// Problems are all that is wrong with what a consumer is made of. Errors begin with the name of its
// package.
type Problems struct {
	pkg string
	all []error
}

// Complete fills in the defaults of a configuration, and checks it. group is the default of its
// Consumer, names are what the broker calls the sources: Source and DeadLetters answer for no others
// afterwards.
func Complete(pkg string, c *inbox.ConsumerConfig, handler inbox.Handler, group string, names ...string) *Problems {
	p := &Problems{pkg: pkg}
	c.Consumer, c.Log, c.Retry = cmp.Or(c.Consumer, group), cmp.Or(c.Log, slog.Default()), c.Retry.WithDefaults(inbox.DefaultRetry())
	fill(p, "Workers", &c.Workers, inbox.DefaultWorkers)
	fill(p, "MaxOutstandingMessages", &c.MaxOutstandingMessages, inbox.DefaultMaxOutstandingMessages)
	fill(p, "MaxOutstandingBytes", &c.MaxOutstandingBytes, inbox.DefaultMaxOutstandingBytes)
	fill(p, "Timeout", &c.Timeout, inbox.DefaultTimeout)
	c.ShutdownTimeout = max(cmp.Or(c.ShutdownTimeout, inbox.DefaultShutdownTimeout), 0)
	c.Decoder = bounded(c.Decoder)
	c.Unreadable = cmp.Or(c.Unreadable, inbox.UnreadableDeadLetter)
	p.If(c.Unreadable != inbox.UnreadableDeadLetter && c.Unreadable != inbox.UnreadableSkip, "Unreadable is %.40q: give %q or %q, or nothing for %[2]q",
		c.Unreadable, inbox.UnreadableDeadLetter, inbox.UnreadableSkip)
	p.If(handler == nil, "the handler is nil")
	if handler != nil {
		if err := inbox.Validate(handler); err != nil {
			p.all = append(p.all, err)
		}
	}
	p.add("Retry", c.Retry.Validate())
	p.add("Consumer", inbox.ValidateConsumer(c.Consumer))
	if c.Source == nil {
		c.Source = func(name string) string { return name }
	}
	c.Source, c.DeadLetters = p.ask("Source", c.Source, names), p.ask("DeadLetters", c.DeadLetters, names)
	for _, name := range names {
		if source := c.Source(name); source != name { // a long name of the broker is cut by the inbox
			p.add(fmt.Sprintf("Source: that of %.40q", name), inbox.ValidateSource(source))
		}
	}
	return p
}

// ask calls a function once for each name, and returns one that repeats the answers. A panic is a problem,
// and the name its answer.
func (p *Problems) ask(field string, f func(name string) string, names []string) func(name string) string {
	if f == nil {
		return nil
	}
	answers := make(map[string]string, len(names))
	one := func(name string) {
		defer func() {
			if value := recover(); value != nil {
				p.If(true, "%s: the function panics for %.40q: %v", field, name, value)
			}
		}()
		answers[name] = f(name)
	}
	for _, name := range names {
		if _, asked := answers[name]; !asked {
			answers[name] = name
			one(name)
		}
	}
	return func(name string) string { return answers[name] }
}

// fill fills in a field that is zero, and reports one that is negative.
func fill[T int | time.Duration](p *Problems, field string, value *T, usual T) {
	*value = cmp.Or(*value, usual)
	p.If(*value < 0, "%s is %v: give a positive value, or 0 for %v", field, *value, usual)
}

// If adds a problem where there is one.
func (p *Problems) If(bad bool, format string, args ...any) {
	if bad {
		p.all = append(p.all, fmt.Errorf(p.pkg+": "+format, args...))
	}
}

func (p *Problems) add(field string, err error) { p.If(err != nil, field+": %w", err) }

// Sources checks the names of several sources of a kind, such as "topic", and those of the places for
// their dead letters.
func (p *Problems) Sources(kind string, names []string, letters func(name string) string) {
	p.If(len(names) == 0, "there is no %s to read: name at least one", kind)
	for i, name := range names {
		p.If(name == "", "a %s has no name", kind)
		p.If(slices.Contains(names[:i], name), "the %s %q is named twice", kind, name)
		if letters == nil {
			continue
		}
		dead := letters(name)
		p.If(dead == "", "DeadLetters: the %s %q has no place for its dead letters: name one", kind, name)
		p.If(dead != "" && slices.Contains(names, dead), "DeadLetters: those of %q would go to %q, which is read itself", name, dead)
	}
}

// Err joins the problems; nil where there is none.
func (p *Problems) Err() error { return errors.Join(p.all...) }

// SettingsOf are those of a session of a consumer with a completed configuration.
func SettingsOf(c *inbox.ConsumerConfig, handler inbox.Handler, log *slog.Logger, counts *Counts) Settings {
	return Settings{
		Runner:  inbox.Runner{Handler: handler, Retry: c.Retry, Timeout: c.Timeout, Observer: c.Observer, Log: c.Log},
		Workers: c.Workers, Shutdown: c.ShutdownTimeout, Grace: grace, Log: log, Counts: counts,
		Decoder: c.Decoder, Unreadable: c.Unreadable,
	}
}
