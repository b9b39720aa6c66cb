package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// scripted is a broker whose answers a test writes, by message id: nil confirms, an error has its class.
type scripted struct {
	outcome func(id string) *outbox.LastError

	mu       sync.Mutex
	answered map[string]bool
}

func (b *scripted) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(messages))
	failed := map[string]bool{}
	for i, m := range messages {
		last := b.outcome(m.ID)
		if failed[m.OrderingKey] {
			last = &outbox.LastError{Class: "not_sent"}
		}
		switch {
		case last == nil:
			results[i].BrokerMessageID = "1-0"
		case last.Class == "not_sent":
			results[i].Err = brokers.ErrNotSent
		case last.Class == "permanent":
			results[i].Err = brokers.Permanent(errors.New(last.Message))
		default:
			results[i].Err = brokers.Retryable(errors.New(last.Message))
		}
		failed[m.OrderingKey] = m.OrderingKey != "" && last != nil
		b.mu.Lock()
		b.answered[m.ID] = true
		b.mu.Unlock()
	}
	return results
}

func (b *scripted) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }
func (b *scripted) Ping(context.Context) error         { return nil }
func (b *scripted) Close(context.Context) error        { return nil }

// relays delivers the rows of a broker, with the answers of a test, until a condition holds.
func (s *shop) relays(broker string, answers *scripted, until func() bool) {
	s.Helper()
	answers.answered = map[string]bool{}
	processor, err := s.processor(relay.ProcessorConfig{
		Database: "main", Broker: broker, Target: answers, Log: slog.New(slog.DiscardHandler),
		Policy: outbox.Policy{
			BlockAbandoned: true, BatchSize: 4, PollMin: 2 * time.Millisecond, PollMax: 5 * time.Millisecond,
			Retry: outbox.Retry{BaseDelay: time.Hour, MaxDelay: time.Hour, Jitter: -1},
		},
	})
	require.NoError(s, err)
	ctx, stop := context.WithCancel(s.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- processor.Run(ctx) }()
	for !until() {
		select {
		case <-ctx.Done():
			require.NoError(s, ctx.Err(), "the relay does not get there")
		case <-time.After(2 * time.Millisecond):
		}
	}
	stop()
	require.NoError(s, <-ended)
}

// complete delivers the pending rows of a broker. outcome is by message id: nil = published, permanent =
// abandoned, not_sent = as it was, another class = failed with a backoff of an hour.
func (s *shop) complete(broker string, outcome func(id string) *outbox.LastError) {
	s.Helper()
	var wanted []string
	for _, r := range lines[api.Record](s.T, s.does("messages", "list", "--json", "--broker", broker, "--status", "pending", "--limit", "5000")) {
		if last := outcome(r.MessageID); r.MessageID != "" && (last == nil || last.Class != "not_sent") {
			wanted = append(wanted, r.MessageID)
		}
	}
	answers := &scripted{outcome: outcome}
	s.relays(broker, answers, func() bool {
		answers.mu.Lock()
		defer answers.mu.Unlock()
		return !slices.ContainsFunc(wanted, func(id string) bool { return !answers.answered[id] })
	})
	for { // a relay puts unsent messages off for a moment
		pending := lines[api.Record](s.T, s.does("messages", "list", "--json", "--broker", broker, "--status", "pending", "--limit", "5000"))
		if !slices.ContainsFunc(pending, func(r api.Record) bool { return r.State == outbox.StateBackoff }) {
			return
		}
	}
}

// claim claims the pending rows of a broker as a worker does that then dies; its lease has expired, or does so
// in an hour.
func (s *shop) claim(broker string, expired bool) {
	s.Helper()
	until := map[outbox.Dialect]string{
		outbox.Postgres: "created_at + interval '1 hour'", outbox.MySQL: "created_at + INTERVAL 1 HOUR",
		outbox.SQLite: "created_at + 3600000000", outbox.SQLServer: "DATEADD(hour, 1, created_at)",
	}[s.driver]
	if expired {
		until = "created_at"
	}
	s.exec(strings.NewReplacer("{until}", until, "{broker}", broker).Replace(
		"UPDATE outbox_messages SET status = 'processing', locked_by = 'dead', lock_token = message_id, locked_until = {until} " +
			"WHERE status = 'pending' AND target_broker = '{broker}'"))
}
