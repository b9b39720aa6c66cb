package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		class brokers.Class
		scope brokers.Scope
	}{
		"nil":                    {nil, "", ""},
		"plain":                  {io.EOF, brokers.ClassRetryable, ""},
		"cancelled":              {context.Canceled, brokers.ClassRetryable, ""},
		"permanent":              {brokers.Permanent(io.EOF), brokers.ClassPermanent, ""},
		"retryable":              {brokers.Retryable(io.EOF), brokers.ClassRetryable, ""},
		"unavailable":            {brokers.Unavailable(brokers.ScopeDestination, io.EOF), brokers.ClassUnavailable, brokers.ScopeDestination},
		"a partition":            {brokers.Unreachable(brokers.ScopePartition, io.EOF), brokers.ClassUnavailable, brokers.ScopePartition},
		"refused":                {brokers.Refused(brokers.ScopeBroker, brokers.Permanent(io.EOF)), brokers.ClassPermanent, ""},
		"refused, no class":      {brokers.Refused(brokers.ScopeBroker, io.EOF), brokers.ClassRetryable, ""},
		"refused, and out":       {brokers.Refused(brokers.ScopeBroker, brokers.Unavailable(brokers.ScopeDestination, io.EOF)), brokers.ClassUnavailable, brokers.ScopeDestination},
		"refused, and not sent":  {brokers.Refused(brokers.ScopeBroker, brokers.ErrNotSent), brokers.ClassNotSent, ""},
		"wrapped":                {fmt.Errorf("more: %w", brokers.Permanent(io.EOF)), brokers.ClassPermanent, ""},
		"not sent":               {brokers.ErrNotSent, brokers.ClassNotSent, ""},
		"not sent, with reason":  {brokers.NotSentBecause(io.EOF), brokers.ClassNotSent, ""},
		"follower of a dead one": {brokers.NotSentBecause(brokers.Permanent(io.EOF)), brokers.ClassNotSent, ""},
		"closed":                 {brokers.ErrClosed, brokers.ClassUnavailable, brokers.ScopeBroker},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			class, scope := brokers.Classify(c.err)
			assert.Equal(t, c.class, class)
			assert.Equal(t, c.scope, scope)
		})
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	refused := brokers.Refused(brokers.ScopeDestination, brokers.Permanent(io.EOF))
	scope, is := brokers.Refusal(fmt.Errorf("more: %w", refused))
	assert.True(t, is)
	assert.Equal(t, brokers.ScopeDestination, scope)
	require.ErrorIs(t, refused, io.EOF)
	require.EqualError(t, refused, "permanent: EOF", "the class is said once")
	scope, is = brokers.Refusal(io.EOF)
	assert.True(t, is, "an error without a class does not say whose it is")
	assert.Equal(t, brokers.ScopeDestination, scope)
	for _, other := range []error{
		nil, brokers.Retryable(io.EOF), brokers.ErrClosed, brokers.NotSentBecause(io.EOF), brokers.Permanent(io.EOF), brokers.Unavailable(brokers.ScopeDestination, io.EOF), brokers.ErrNotSent,
	} {
		_, is := brokers.Refusal(other)
		assert.False(t, is, "%v", other)
	}
}

func TestErrorsKeepTheirCause(t *testing.T) {
	t.Parallel()
	err := brokers.Unavailable(brokers.ScopeBroker, io.EOF)
	require.ErrorIs(t, err, io.EOF)
	require.EqualError(t, err, "broker unavailable: EOF")
	require.EqualError(t, brokers.Permanent(io.EOF), "permanent: EOF")
	require.EqualError(t, brokers.NotSentBecause(errors.New("x")), "brokers: not sent: x")
	require.Equal(t, brokers.ErrNotSent, brokers.NotSentBecause(nil))
	require.NotErrorIs(t, brokers.NotSentBecause(io.EOF), io.EOF, "the cause is another message's")
}

func TestFields(t *testing.T) {
	t.Parallel()
	m := brokers.Message{ID: "1", Type: "T.v1", Attributes: []brokers.Attribute{{Name: "b", Value: "2"}, {Name: "a", Value: ""}}}
	fields := func(m brokers.Message, most int) (all []string) {
		m.Fields(func(name, value string) bool {
			all = append(all, name+"="+value)
			return len(all) < most
		})
		return all
	}
	assert.Equal(t, []string{"id=1", "type=T.v1", "b=2", "a="}, fields(m, 100))
	m.CorrelationID, m.ContentType = "c", "text/plain"
	want := []string{"id=1", "type=T.v1", "correlation_id=c", "content-type=text/plain", "b=2", "a="}
	for most := 1; most <= len(want); most++ {
		assert.Equal(t, want[:most], fields(m, most), "the walk stops when it is told to")
	}
}
