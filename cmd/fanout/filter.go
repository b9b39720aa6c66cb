package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// filterFlags select rows.
type filterFlags struct {
	broker, eventType, key, keyPrefix, errorClass, fingerprint string
	aggregate, correlation, tenant                             string
	statuses, ids                                              []string
	since, until                                               string
}

// addFilter adds the flags. statuses are those that the command is for.
func addFilter(cmd *cobra.Command, statuses ...outbox.Status) *filterFlags {
	f, flags := &filterFlags{}, cmd.Flags()
	flags.StringVar(&f.broker, "broker", "", "rows for this broker")
	flags.StringSliceVar(&f.statuses, "status", nil, "rows in these states: "+strings.Join(statusWords(statuses...), ", "))
	flags.StringVar(&f.eventType, "type", "", "rows of this event type, or of those that begin like it where it ends with \"*\"")
	flags.StringVar(&f.key, "key", "", "rows of this ordering key, with its context (ordering::order-42) or, for that of all contexts, without (order-42)")
	flags.StringVar(&f.aggregate, "aggregate", "", "rows of this aggregate, by its id with its type (order-42) or without (42)")
	flags.StringVar(&f.correlation, "correlation", "", "rows with this correlation id")
	flags.StringVar(&f.tenant, "tenant", "", "rows of this tenant")
	flags.StringSliceVar(&f.ids, "id", nil, "rows of these messages")
	flags.StringVar(&f.errorClass, "error-class", "", "rows whose last error is of this class")
	flags.StringVar(&f.since, "since", "", "rows written since this `time`: an age such as 2h or 7d, or RFC 3339")
	flags.StringVar(&f.until, "until", "", "rows written before this `time`")
	complete(cmd, "broker", (*config.Config).BrokerNames)
	completeFixed(cmd, "status", statusWords(statuses...)...)
	completeFixed(cmd, "error-class", "permanent", "retryable", "unavailable", "not_sent",
		outbox.ClassMalformed, outbox.ClassExpired, outbox.ClassCrashed, outbox.ClassAttempts, admin.ClassOperator)
	return f
}

// withFingerprint adds --fingerprint to commands that work on failures.
func (f *filterFlags) withFingerprint(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.fingerprint, "fingerprint", "", "rows of one group of \"fanout messages failures\"")
}

// withKeyPrefix adds --key-prefix to commands that change rows.
func (f *filterFlags) withKeyPrefix(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.keyPrefix, "key-prefix", "", "rows of ordering keys that begin like this")
}

var fingerprintForm = regexp.MustCompile(`^[0-9a-f]{12}$`)

// filter checks the flags.
func (f *filterFlags) filter(now time.Time, allowed ...outbox.Status) (admin.Filter, error) {
	filter := admin.Filter{
		Broker: f.broker, Type: f.eventType, Key: f.key, KeyPrefix: f.keyPrefix, Aggregate: f.aggregate, Correlation: f.correlation, Tenant: f.tenant, ErrorClass: f.errorClass,
	}
	for _, word := range f.statuses {
		status := outbox.Status(word)
		if !slices.Contains(allowed, status) {
			return filter, usageError{fmt.Errorf("--status is %q: use %s", word, strings.Join(statusWords(allowed...), ", "))}
		}
		filter.Statuses = append(filter.Statuses, status)
	}
	for _, id := range f.ids {
		if err := checkID(id); err != nil {
			return filter, usageError{fmt.Errorf("--id: %w", err)}
		}
		filter.MessageIDs = append(filter.MessageIDs, id)
	}
	if f.fingerprint != "" && !fingerprintForm.MatchString(f.fingerprint) {
		return filter, usageError{fmt.Errorf("--fingerprint is %q: use the 12 hexadecimal digits that \"fanout messages failures\" shows", f.fingerprint)}
	}
	var err error
	if filter.Since, err = parseTime("--since", f.since, now); err != nil {
		return filter, err
	}
	if filter.Until, err = parseTime("--until", f.until, now); err != nil {
		return filter, err
	}
	if !filter.Since.IsZero() && !filter.Until.IsZero() && !filter.Since.Before(filter.Until) {
		return filter, usageError{fmt.Errorf("nothing lies between --since %s and --until %s: the first must be the earlier one", f.since, f.until)}
	}
	return filter, nil
}

// empty reports whether nothing is selected.
func (f *filterFlags) empty() bool {
	return f.broker+f.eventType+f.key+f.keyPrefix+f.aggregate+f.correlation+f.tenant+f.errorClass+f.fingerprint+f.since+f.until == "" && len(f.statuses) == 0 && len(f.ids) == 0
}

func checkID(id string) error {
	if uuid.Validate(id) != nil {
		return fmt.Errorf("%q is no message id: use a UUID", id)
	}
	return nil
}

// parseTime reads an age, counted from now by this machine's clock, or a time.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	d, err := parseAge(text)
	if err != nil {
		return time.Time{}, usageError{fmt.Errorf("%s is %q: use an age such as 2h or 7d, or a time such as %s", flag, text, now.UTC().Format(time.RFC3339))}
	}
	return now.Add(-d), nil
}

// parseAge reads a positive duration.
func parseAge(text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not positive", text)
	}
	return d, err
}

// selects tests the conditions of a filter, but for the message id.
func selects(f *admin.Filter, r *admin.Record) bool {
	class := ""
	if r.LastError != nil {
		class = r.LastError.Class
	}
	for _, is := range []struct{ asked, value string }{
		{f.Broker, r.Broker}, {f.Correlation, r.CorrelationID}, {f.Tenant, r.TenantID}, {f.ErrorClass, class},
	} {
		if is.asked != "" && is.asked != is.value {
			return false
		}
	}
	aggregates := []string{"", r.AggregateID, r.AggregateType + "-" + r.AggregateID, r.AggregateType + " " + r.AggregateID}
	return (len(f.Statuses) == 0 || slices.Contains(f.Statuses, r.Status)) &&
		keyMatches(f.Key, r.OrderingKey) && typeMatches(f.Type, r.Type) && slices.Contains(aggregates, f.Aggregate) &&
		(f.Since.IsZero() || !r.CreatedAt.Before(f.Since)) && (f.Until.IsZero() || r.CreatedAt.Before(f.Until))
}

// keyMatches compares an ordering key with one that is asked for with its context or without.
func keyMatches(asked, key string) bool {
	_, bare, _ := strings.Cut(key, "::")
	return asked == "" || asked == key || asked == bare && !strings.Contains(asked, "::")
}

// typeMatches compares an event type with what [admin.Filter] takes.
func typeMatches(pattern, eventType string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == "" || pattern == eventType || open && strings.HasPrefix(eventType, prefix)
}
