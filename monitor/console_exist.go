package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/nearest"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// maxLookedUp is how many message ids are looked up one by one.
	maxLookedUp = 1000
	// maxNamed is how many names an answer holds.
	maxNamed = 10
	// maxLook is for how long a name is looked for that no index has.
	maxLook = 10 * time.Second
	// recentRows is how many rows of each broker and status are read for what may have been meant.
	recentRows = 50
)

// Exist is for those whose filter selects nothing: a typing error must not look like work that is
// done. It checks that each name in the filter, and the fingerprint unless it is empty, is in one of
// the databases at least, in all of them where none is named; a broker may be in the configuration
// alone. The error is a [*NotFoundError] that says which name is unknown, and what is close to it. It
// reads rows where a name has no index, for ten seconds at most; one that it has not found by then counts
// as known. So does what is not checked: statuses and times, and message ids beyond a thousand.
func (c *Console) Exist(ctx context.Context, databases []string, filter admin.Filter, fingerprint string) error {
	if len(databases) == 0 {
		databases = c.Databases()
	}
	e := &existence{c, ctx, databases, filter.Broker}
	checks := []struct {
		name  string
		check func(name string) (unknown string, err error)
	}{
		{filter.Broker, e.broker},
		{filter.Type, e.eventType},
		{filter.Key, e.key},
		{filter.ErrorClass, e.class},
		{fingerprint, e.fingerprint},
		{filter.KeyPrefix, e.of("beginning of its ordering key", func(name string) admin.Filter { return admin.Filter{KeyPrefix: name} })},
		{filter.Aggregate, e.of("aggregate", func(name string) admin.Filter { return admin.Filter{Aggregate: name} })},
		{filter.Correlation, e.of("correlation id", func(name string) admin.Filter { return admin.Filter{Correlation: name} })},
		{filter.Tenant, e.of("tenant", func(name string) admin.Filter { return admin.Filter{Tenant: name} })},
	}
	var reasons []string
	for _, one := range checks {
		if one.name == "" {
			continue
		}
		unknown, err := one.check(one.name)
		if err != nil {
			return err
		}
		if unknown != "" {
			reasons = append(reasons, unknown)
		}
	}
	unknown, err := e.messages(filter.MessageIDs)
	if err != nil {
		return err
	}
	if unknown != "" {
		reasons = append(reasons, unknown)
	}
	if len(reasons) > 0 {
		return &NotFoundError{Reason: strings.Join(reasons, "; ")}
	}
	return nil
}

// existence is one call of Exist.
type existence struct {
	console   *Console
	ctx       context.Context //nolint:containedctx // of the one call
	databases []string
	asked     string // the broker that the filter names; may be empty
}

// broker, and what follows it, return what there is to say about a name that is unknown, "" of one
// that is known.
func (e *existence) broker(name string) (string, error) {
	known := e.console.Brokers()
	if slices.Contains(known, name) {
		return "", nil
	}
	for _, database := range e.databases {
		brokers, err := e.console.brokersOf(e.ctx, database, "")
		if err != nil {
			return "", err
		}
		paused, err := ask(e.ctx, e.console, database, func(ctx context.Context, store admin.Administration) ([]admin.Pause, error) { return store.Pauses(ctx) })
		if err != nil {
			return "", err
		}
		for _, pause := range paused {
			brokers = append(brokers, pause.Broker)
		}
		if slices.Contains(brokers, name) {
			return "", nil
		}
		known = append(known, brokers...)
	}
	if found, err := e.matches(admin.Filter{Broker: name}); found || err != nil {
		return "", err
	}
	slices.Sort(known)
	return fmt.Sprintf("there is no broker %q, in the configuration or in a table%s", name, DidYouMean(name, slices.Compact(known))), nil
}

func (e *existence) eventType(name string) (string, error) {
	if found, err := e.matches(admin.Filter{Type: name}); found || err != nil {
		return "", err
	}
	recent, err := e.recent(func(r *admin.Record) string { return r.Type })
	if err != nil {
		return "", err
	}
	near := nearest.Of(name, recent)
	if part := strings.ToLower(strings.TrimSuffix(name, "*")); near == "" && part != "" { // OrderPlaced for Ordering.OrderPlaced.v1
		if i := slices.IndexFunc(recent, func(known string) bool { return strings.Contains(strings.ToLower(known), part) }); i >= 0 {
			near = recent[i]
		}
	}
	return fmt.Sprintf("no message has the type %q%s%s", name, e.console.orNotKept(e.asked), meant(near, recent)), nil
}

func (e *existence) key(name string) (string, error) {
	if found, err := e.matches(admin.Filter{Key: name}); found || err != nil {
		return "", err
	}
	recent, err := e.recent(func(r *admin.Record) string { return r.OrderingKey })
	if err != nil {
		return "", err
	}
	// One with another number is another one.
	near := nearest.Of(name, slices.DeleteFunc(recent, func(known string) bool { return digits(known) != digits(name) }))
	return fmt.Sprintf("no message has the ordering key %q%s%s", name, e.console.orNotKept(e.asked), meant(near, nil)), nil
}

// of checks a name that is like no other one.
func (e *existence) of(what string, filter func(name string) admin.Filter) func(name string) (string, error) {
	return func(name string) (string, error) {
		if found, err := e.matches(filter(name)); found || err != nil {
			return "", err
		}
		return fmt.Sprintf("no message has the %s %q%s", what, name, e.console.orNotKept(e.asked)), nil
	}
}

func digits(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text)
}

// errorClasses are those that relays and operators write.
func errorClasses() []string {
	return []string{
		string(brokers.ClassPermanent), string(brokers.ClassRetryable), string(brokers.ClassUnavailable), string(brokers.ClassNotSent),
		outbox.ClassMalformed, outbox.ClassExpired, outbox.ClassCrashed, outbox.ClassAttempts, admin.ClassOperator,
	}
}

func (e *existence) class(name string) (string, error) {
	if slices.Contains(errorClasses(), name) {
		return "", nil
	}
	if found, err := e.matches(admin.Filter{ErrorClass: name}); found || err != nil {
		return "", err
	}
	return fmt.Sprintf("there is no error class %q%s", name, DidYouMean(name, errorClasses())), nil
}

func (e *existence) fingerprint(name string) (string, error) {
	var known []string
	for _, database := range e.databases {
		failures, err := e.console.Failures(e.ctx, database, "")
		if err != nil {
			return "", err
		}
		for i := range failures.Groups {
			known = append(known, failures.Groups[i].Fingerprint)
		}
		if slices.Contains(known, name) || failures.More { // it may be that of an older one
			return "", nil
		}
	}
	return fmt.Sprintf("no failed or abandoned message has the fingerprint %s%s", name, meant(nearest.Of(name, known), nil)), nil
}

func (e *existence) messages(ids []string) (string, error) {
	var unknown []string
	for _, id := range ids[:min(len(ids), maxLookedUp)] {
		found := false
		for _, database := range e.databases {
			records, err := e.console.Message(e.ctx, database, id)
			if err != nil {
				return "", err
			}
			found = found || len(records) > 0
		}
		if !found {
			unknown = append(unknown, id)
		}
	}
	switch n := len(unknown); n {
	case 0:
		return "", nil
	case 1:
		recent, err := e.recent(func(r *admin.Record) string { return r.MessageID })
		return fmt.Sprintf("there is no message %s: it was purged, or never committed%s%s", unknown[0], e.console.orNotKept(e.asked),
			strings.Replace(meant(nearest.Of(unknown[0], recent), nil), ":", ";", 1)), err
	default:
		more := ""
		if n > maxNamed {
			more = fmt.Sprintf(" and %d more", n-maxNamed)
		}
		return fmt.Sprintf("there are no messages %s%s: they were purged, or never committed%s",
			strings.Join(unknown[:min(n, maxNamed)], ", "), more, e.console.orNotKept(e.asked)), nil
	}
}

// matches reports whether a row of one of the databases has what a filter says, or may have: it looks for
// no longer than maxLook where no index has the answer.
func (e *existence) matches(filter admin.Filter) (bool, error) {
	begun := time.Now()
	for _, database := range e.databases {
		for query := (MessagesQuery{Filter: filter, Limit: 1}); ; {
			page, err := e.console.Messages(e.ctx, database, query)
			switch {
			case err != nil:
				return false, errors.Join(errors.New("whether there is such a row could not be found out"), err)
			case len(page.Records) > 0 || time.Since(begun) > maxLook:
				return true, nil
			}
			if query.Cursor = page.Next; query.Cursor == "" {
				break
			}
		}
	}
	return false, nil
}

// recent are the names that the newest rows have, sorted.
func (e *existence) recent(name func(*admin.Record) string) (names []string, err error) {
	for _, database := range e.databases {
		brokers, err := e.console.brokersOf(e.ctx, database, "")
		if err != nil {
			return nil, err
		}
		for _, broker := range brokers[:min(len(brokers), admin.MaxStrangers)] {
			for _, status := range outbox.Statuses() {
				page, err := e.console.Messages(e.ctx, database, MessagesQuery{Filter: admin.Filter{Broker: broker, Statuses: []outbox.Status{status}}, Limit: recentRows})
				if err != nil {
					return nil, err
				}
				for i := range page.Records {
					if text := name(&page.Records[i]); text != "" {
						names = append(names, text)
					}
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// DidYouMean ends a sentence about a name that is unknown, as ": did you mean ...?": with the known one
// that is near, else with all of them, if they are few.
func DidYouMean(name string, known []string) string { return meant(nearest.Of(name, known), known) }

func meant(near string, known []string) string {
	switch {
	case near != "":
		return fmt.Sprintf(": did you mean %q?", near)
	case len(known) > 0 && len(known) <= maxNamed:
		return fmt.Sprintf(": there are %q", known)
	default:
		return ""
	}
}
