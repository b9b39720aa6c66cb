package kafka

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
)

//go:embed doc.go
var docGo string

// Each code of Kafka has a class and scope, and the documentation says which: that of its line, or that
// of the lines for the rest.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	line := func(of string, r rule) string {
		return fmt.Sprintf(`(?m)^//\t%s.* {2,}%s {2,}`, of, strings.TrimSpace(string(r.class)+" "+string(r.scope)))
	}
	assert.Regexp(t, line("another that Kafka says passes", restPasses), docGo)
	assert.Regexp(t, line("anything else", restRefuses), docGo)
	walked := 0
	for code := kerr.UnknownServerError.Code; code < 1000; code++ {
		r, ruled := rules[code]
		known := kerr.TypedErrorForCode(code)
		if code == 0 || known.Code != code {
			assert.False(t, ruled, "%d is no code", code)
			continue
		}
		walked++
		of := fmt.Sprintf(`(?:[^\n]*[ ,])?%d(?:,| [a-z])`, code)
		if ruled {
			assert.Regexp(t, line(of, r), docGo, "%d %v", code, known)
			assert.NotEmpty(t, r.advice, "%d %v", code, known)
			continue
		}
		assert.NotRegexp(t, `(?m)^//\t`+of, docGo, "%d %v", code, known)
		if kerr.IsRetriable(known) {
			r = restPasses
		} else {
			r = restRefuses
		}
		assert.Equal(t, r, ruleOf(code, known), "%d %v", code, known)
	}
	assert.Greater(t, walked, 130)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err   error
		class brokers.Class
		scope brokers.Scope
		says  string
	}{
		{kerr.UnknownTopicOrPartition, brokers.ClassUnavailable, brokers.ScopeDestination, "create the topic"},
		{fmt.Errorf("x: %w", kerr.SaslAuthenticationFailed), brokers.ClassUnavailable, brokers.ScopeBroker, "check user, password and mechanism"},
		{kerr.NotEnoughReplicas, brokers.ClassUnavailable, brokers.ScopePartition, "min.insync.replicas"},
		// The time is this machine's, and given anew at each attempt: a clock that is wrong costs no message its life.
		{kerr.InvalidTimestamp, brokers.ClassUnavailable, brokers.ScopeDestination, "this machine's clock"},
		{kerr.UnsupportedForMessageFormat, brokers.ClassUnavailable, brokers.ScopeDestination, "message.format.version"},
		{kerr.MessageTooLarge, brokers.ClassPermanent, "", "raise max.message.bytes"},
		{kerr.CorruptMessage, brokers.ClassRetryable, "", "damaged"},
		{kerr.UnknownServerError, brokers.ClassUnavailable, brokers.ScopePartition, "see the log of the partition's leader"},
		{fmt.Errorf("%w (last answer: %w)", kgo.ErrRecordRetries, kerr.OutOfOrderSequenceNumber), brokers.ClassUnavailable, brokers.ScopePartition, "begins with a new one"},
		{kerr.GroupIDNotFound, brokers.ClassRetryable, "", "see the log"},
		{context.DeadlineExceeded, brokers.ClassUnavailable, brokers.ScopeBroker, "addresses that they advertise"},
		{fmt.Errorf("unable to initialize a producer ID: %w", kerr.CoordinatorLoadInProgress), brokers.ClassUnavailable, brokers.ScopeBroker, "when most of its servers run"},
		{kgo.ErrRecordRetries, brokers.ClassUnavailable, brokers.ScopeBroker, "when the partition has a leader"},
		{errors.New("whatever"), brokers.ClassUnavailable, brokers.ScopeBroker, "whatever"},
		{checkTopic("a b"), brokers.ClassUnavailable, brokers.ScopeDestination, `the topic "a b" has " "`},
		{checkTopic(".."), brokers.ClassUnavailable, brokers.ScopeDestination, `".." is no name of a topic`},
		{checkTopic(strings.Repeat("x", 250)), brokers.ClassUnavailable, brokers.ScopeDestination, "has 250 bytes, Kafka takes 249"},
	} {
		got := classified("publish", test.err)
		class, scope := brokers.Classify(got)
		assert.Equal(t, test.class, class, "%v", got)
		assert.Equal(t, test.scope, scope, "%v", got)
		require.ErrorContains(t, got, "kafka: publish: ")
		require.ErrorContains(t, got, test.says)
		assert.NotErrorIs(t, got, brokers.ErrNotSent)
		refusal, refused := brokers.Refusal(got)
		assert.Equal(t, class != brokers.ClassUnavailable, refused, "%v", got)
		if errors.Is(test.err, kerr.CorruptMessage) {
			assert.Equal(t, brokers.ScopePartition, refusal)
		} else if refused {
			assert.Equal(t, brokers.ScopeDestination, refusal)
		}
	}
}
