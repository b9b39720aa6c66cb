package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
)

// ClassOperator is the class in [outbox.LastError] of a row that an operator has abandoned.
const ClassOperator = "operator"

// For makes a filter ready for an action of an [Operator], which its store calls by the given name:
// it fills in the statuses where the filter names none, and brings message ids to their canonical
// form. It refuses what cannot be meant: a limit below 1, a status that the action is not for, a
// message id that is no UUID, a time range that is empty, and text that no row can hold.
func (f Filter) For(action string, limit int, statuses ...outbox.Status) (Filter, error) {
	var problems []error
	refuse := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(action+": "+format, args...))
	}
	if limit < 1 {
		refuse("the limit is %d: it must be at least 1", limit)
	}
	for _, status := range f.Statuses {
		switch {
		case !status.Valid():
			refuse("there is no status %q: the statuses are %q", status, outbox.Statuses())
		case !slices.Contains(statuses, status):
			refuse("rows that are %s are not for it: only rows that are %s", status, words(statuses))
		}
	}
	ids := make([]string, len(f.MessageIDs))
	for i, text := range f.MessageIDs {
		id, err := uuid.Parse(text)
		if err != nil {
			refuse("message id %q is no UUID", text)
		}
		ids[i] = id.String()
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		refuse("nothing lies between since %s and until %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))
	}
	for _, field := range []struct{ name, value string }{
		{"broker", f.Broker},
		{"type", f.Type},
		{"key", f.Key},
		{"key prefix", f.KeyPrefix},
		{"error class", f.ErrorClass},
		{"aggregate", f.Aggregate},
		{"correlation id", f.Correlation},
		{"tenant", f.Tenant},
	} {
		if strings.ContainsRune(field.value, 0) || !utf8.ValidString(field.value) {
			refuse("the %s %q is no text that a row can hold", field.name, field.value)
		}
	}
	if len(f.Statuses) == 0 {
		f.Statuses = statuses
	}
	f.MessageIDs = ids
	return f, errors.Join(problems...)
}

// A RequeueOption changes what a requeue does.
type RequeueOption func(*Requeuing)

// Requeuing is what the options of a requeue come to, for stores.
type Requeuing struct {
	// TTL that the rows get, counted from now by the database's clock; 0 = none of them gets a new
	// one.
	TTL time.Duration
	err error
}

// maxTTL bounds a time to live, which must not lead beyond what a database can hold.
const maxTTL = 10 * 365 * 24 * time.Hour

// WithTTL gives the rows a new time to live, counted from the requeue: who is not delivered by then
// is abandoned. It must be positive, and no more than ten years.
func WithTTL(ttl time.Duration) RequeueOption {
	return func(r *Requeuing) {
		if ttl <= 0 || ttl > maxTTL {
			r.err = fmt.Errorf("requeue: the time to live (ttl) is %s: use a positive one of at most ten years", ttl)
		}
		r.TTL = ttl
	}
}

// NewRequeuing puts options together, and refuses those that cannot be meant.
func NewRequeuing(opts ...RequeueOption) (Requeuing, error) {
	var r Requeuing
	for _, opt := range opts {
		opt(&r)
	}
	return r, r.err
}

// Refused is the error class of rows that a requeue with this filter leaves out; empty = none.
func (Requeuing) Refused(filter *Filter) string {
	if filter.ErrorClass == "" {
		return outbox.ClassMalformed
	}
	return ""
}

// RequeueStatuses are those of the rows that a requeue is for; of the processing ones, those whose
// lease is over.
func RequeueStatuses() []outbox.Status {
	return []outbox.Status{outbox.StatusPending, outbox.StatusProcessing, outbox.StatusFailed, outbox.StatusAbandoned}
}

// ReplayStatuses are those of the rows that a replay is for.
func ReplayStatuses() []outbox.Status { return []outbox.Status{outbox.StatusPublished} }

// AbandonStatuses are those of the rows that can be abandoned; of the processing ones, those whose
// lease is over.
func AbandonStatuses() []outbox.Status {
	return []outbox.Status{outbox.StatusPending, outbox.StatusProcessing, outbox.StatusFailed}
}

// AbandonedStatuses are those of the rows that can be acknowledged and discarded, and for which keys
// wait.
func AbandonedStatuses() []outbox.Status { return []outbox.Status{outbox.StatusAbandoned} }

func words(statuses []outbox.Status) string {
	names := make([]string, len(statuses))
	for i, status := range statuses {
		names[i] = string(status)
	}
	return strings.Join(names, ", ")
}

// TypePattern splits Type: exact is the type itself, or prefix the beginning when it ends with "*".
// Both are empty where every type matches.
func (f Filter) TypePattern() (exact, prefix string) {
	if prefix, ok := strings.CutSuffix(f.Type, "*"); ok {
		return "", prefix
	}
	return f.Type, ""
}

// OperatorError is the last_error of a row that an operator abandons: why, when, and after how many
// attempts. It is acknowledged.
func OperatorError(reason string, at time.Time, attempts int) string {
	if reason == "" {
		reason = "abandoned by an operator, who gave no reason"
	}
	return outbox.LastError{Acknowledged: true, Class: ClassOperator, Message: reason, At: at.UTC(), Attempt: attempts}.Encode()
}
