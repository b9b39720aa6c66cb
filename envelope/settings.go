package envelope

import (
	"errors"
	"fmt"
	"reflect"
	"time"
)

// settings is what the options of a type, and then those of an event, add up to.
// The event's work on a copy, so nothing in it is ever written in place.
type settings struct {
	published  bool
	contracts  []Contract
	name       string
	version    int
	unordered  bool
	to         []string       // nil: all external brokers
	priority   *PriorityLevel // nil: not said
	ttl        time.Duration  // 0: none
	extensions []extension    // a later one of the same name wins
	encoding   *Encoding      // nil: JSON alone

	functions
}

// functions of an event that options have given. They are called when it is raised.
type functions struct {
	key         func(event any) string // nil: the stream of the aggregate instance
	destination func(event any) string // nil: the stream category
	notBefore   func(event any) time.Time
	occurredAt  func(event any) time.Time // nil: when it was raised
	headers     []header                  // a later one of the same name wins
}

type header struct {
	name  string
	value func(event any) string
}

func (f *functions) none() bool {
	return f.key == nil && f.destination == nil && f.notBefore == nil && f.occurredAt == nil && len(f.headers) == 0
}

// fixed calls the functions, and returns some that do again what they did.
func (f *functions) fixed(event any) (done functions) {
	if f.key != nil {
		done.key = fix(f.key, event)
	}
	if f.destination != nil {
		done.destination = fix(f.destination, event)
	}
	if f.notBefore != nil {
		done.notBefore = fix(f.notBefore, event)
	}
	if f.occurredAt != nil {
		done.occurredAt = fix(f.occurredAt, event)
	}
	for _, h := range f.headers {
		done.headers = append(done.headers, header{h.name, fix(h.value, event)})
	}
	return done
}

type extension struct {
	name  string
	value any
}

// The two places where options are given, as error texts name them.
const (
	atRegister = "register"
	atRaise    = "raise"
)

// apply adds options to s, except those with a problem, and returns all problems.
func (s *settings) apply(attempt string, event reflect.Type, opts []Option) []error {
	var problems []error
	for i, given := range opts {
		if isNilOption(given) {
			problems = append(problems, &OptionError{attempt, goName(event), "nil", errors.New("the option is nil"), "remove it"})
			continue
		}
		o := given.option()
		if f := o.flawAmong(attempt, event, opts[:i]); f != nil {
			problems = append(problems, &OptionError{attempt, goName(event), o.label, f.cause, f.remedy})
			continue
		}
		o.set(s)
	}
	if n := len(s.headers); n > maxHeaders {
		problems = append(problems, &OptionError{
			attempt, goName(event), "Header", fmt.Errorf("there are %d of them, and the most is %d", n, maxHeaders), "put what consumers do not filter on into the data",
		})
	}
	if s.to != nil && !s.published {
		problems = append(problems, &OptionError{
			attempt, goName(event), "To(" + quoteAll(s.to) + ")",
			errors.New("the event type is not marked as published"),
			"add envelope.Published() to its registration",
		})
	}
	return problems
}

func isNilOption(o Option) bool {
	if o == nil {
		return true
	}
	p, ok := o.(*option)
	return ok && p == nil
}

// flawAmong says what is wrong with o given for event after the options before.
func (o *option) flawAmong(attempt string, event reflect.Type, before []Option) *flaw {
	if o.typeOnly && attempt == atRaise {
		return &flaw{
			errors.New("it describes the event type, not one event"),
			fmt.Sprintf("move it to envelope.Register[%s]", goName(event)),
		}
	}
	if o.check != nil {
		if f := o.check(event); f != nil {
			return f
		}
	}
	for _, earlier := range before {
		if isNilOption(earlier) || earlier.option().sets != o.sets {
			continue
		}
		return &flaw{fmt.Errorf("%s is given as well", earlier.option().label), "keep one of the two"}
	}
	return nil
}
