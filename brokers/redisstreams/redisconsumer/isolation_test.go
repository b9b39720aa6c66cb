package redisconsumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// A key of another stream, with a message that waits for its next attempt when one is isolated, stays in order: what was
// given back for that comes before what is new.
func TestOrderAcrossIsolation(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := &site{s.Client, s.stream + "2"}
	s.add(t, "crash", 1000)
	s.readDead(t, 1)
	require.NoError(t, s.Do(t.Context(), "XCLAIM", s.stream, group, "dead", 0, s.rows(t)[0].ID, "IDLE", 0, "RETRYCOUNT", 3, "JUSTID").Err())
	other.add(t, "k", 0)
	other.add(t, "k", 1)
	l := newLedger()
	first := make(chan struct{})
	isolated := make(chan struct{})
	goOn := make(chan struct{})
	failed := false
	h := l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		switch {
		case n == 1000:
			close(isolated)
			<-goOn
		case n == 0 && !failed:
			failed = true
			close(first)
			return errors.New("fails once")
		}
		return nil
	})
	c, err := redisconsumer.NewConsumer(s.Client, group, []string{s.stream, other.stream}, h, quick(redisconsumer.Config{
		ConsumerConfig: inbox.ConsumerConfig{Retry: inbox.Retry{BaseDelay: 3 * time.Second, MaxDelay: 3 * time.Second}}, ClaimAfter: 2 * time.Second,
	}))
	require.NoError(t, err)
	launch(t, c)
	<-first
	<-isolated
	other.add(t, "k", 2)
	close(goOn)
	soon(t, "all", func() bool { return l.len() == 4 })
	l.check(t, 4)
}

// A group that is deleted while an isolated message is handled is created anew: nothing waits
// forever.
func TestGroupDeletedWhileOneIsIsolated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(t, "crash", 1000)
	s.readDead(t, 1)
	require.NoError(t, s.Do(t.Context(), "XCLAIM", s.stream, group, "dead", 0, s.rows(t)[0].ID, "IDLE", 0, "RETRYCOUNT", 3, "JUSTID").Err())
	other := &site{s.Client, s.stream + "2"}
	l := newLedger()
	isolated, goOn := make(chan struct{}), make(chan struct{})
	times := 0
	h := l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		if n == 1000 {
			if times++; times == 1 {
				close(isolated)
				<-goOn
			}
		}
		return nil
	})
	c, err := redisconsumer.NewConsumer(s.Client, group, []string{s.stream, other.stream}, h, quick())
	require.NoError(t, err)
	launch(t, c)
	<-isolated
	require.NoError(t, s.XGroupDestroy(t.Context(), s.stream, group).Err())
	other.add(t, "o", 1)
	s.add(t, "x", 2)
	close(goOn)
	soon(t, "all", func() bool { return l.len() == 3 })
}
