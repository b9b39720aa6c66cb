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

// Each code that has a rule stands in the documentation, with its class and scope, and no other code does.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	for code := range int16(200) {
		r, known := rules[code]
		pattern := fmt.Sprintf(`(?m)^//\t[0-9, ]*\b%d\b[^\n]* %s `, code, strings.TrimSpace(string(r.class)+" "+string(r.scope)))
		if known {
			assert.Regexp(t, pattern, docGo, "%d %v", code, kerr.ErrorForCode(code))
		} else {
			assert.NotRegexp(t, fmt.Sprintf(`(?m)^//\t[0-9, ]*\b%d\b`, code), docGo)
		}
	}
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
		{kerr.NotEnoughReplicas, brokers.ClassUnavailable, brokers.ScopeDestination, "min.insync.replicas"},
		// The time is this machine's, and given anew at each attempt: a clock that is wrong costs no message its life.
		{kerr.InvalidTimestamp, brokers.ClassUnavailable, brokers.ScopeDestination, "this machine's clock"},
		{kerr.UnsupportedForMessageFormat, brokers.ClassUnavailable, brokers.ScopeDestination, "message.format.version"},
		{kerr.MessageTooLarge, brokers.ClassPermanent, "", "raise max.message.bytes"},
		{kerr.CorruptMessage, brokers.ClassRetryable, "", "damaged"},
		{kerr.UnknownServerError, brokers.ClassRetryable, "", "UNKNOWN_SERVER_ERROR"},
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
	}
}
