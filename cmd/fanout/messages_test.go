package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

// What fails for one reason is one group, which is sent again by its fingerprint alone.
func TestRequeueAGroup(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		groups := lines[wireGroup](t, s.does("messages", "failures", "--json"))
		require.Len(t, groups, 2)
		refused := groups[0]
		assert.Equal(t, 3, refused.Count)
		assert.Equal(t, "partner", refused.Broker)
		assert.Equal(t, 3, refused.Keys)
		assert.Len(t, refused.Sample, 3)
		table := s.does("messages", "failures", "--broker", "partner")
		assert.Contains(t, table, refused.Fingerprint)
		assert.Contains(t, table, `permanent: topic refused order`)
		assert.NotContains(t, table, "\x1b", "errors are not obeyed, and nothing is coloured")

		args := []string{"messages", "requeue", "--fingerprint", refused.Fingerprint}
		assert.Equal(t, "main: 3 rows would be requeued\n", s.does(append(args, "--dry-run")...))
		assert.Equal(t, 3, s.count("status = 'abandoned'"), "a dry run changes nothing")
		assert.Empty(t, s.does("audit", "--json"), "and is no entry")

		assert.Equal(t, "main: 3 rows requeued\n", s.does(append(args, "--reason", "they have fixed it", "--by", "ada")...))
		assert.Zero(t, s.count("status = 'abandoned'"))
		assert.Equal(t, 2, s.count("status = 'failed'"), "the other group stays")
		entries := lines[api.AuditEntry](t, s.does("audit", "--json"))
		require.Len(t, entries, 1)
		assert.Equal(t, "ada", entries[0].Actor)
		assert.Equal(t, "cli", entries[0].Via)
		assert.Equal(t, "requeue", entries[0].Action)
		assert.Equal(t, "they have fixed it", entries[0].Reason)
		assert.EqualValues(t, 3, entries[0].Rows)
		assert.Contains(t, string(entries[0].Filter), refused.Fingerprint)
		assert.NotZero(t, entries[0].EndedAt)
		assert.Contains(t, s.does("audit"), "ada (cli)")
	})
}

// A message is found by its id, with all of its rows, and its payload only where the caller asks
// for it.
func TestShowFanOut(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		shown := s.does("messages", "show", messageID(1))
		assert.Contains(t, shown, "main / default")
		assert.Contains(t, shown, "main / partner")
		assert.Contains(t, shown, "published")
		assert.Contains(t, shown, `permanent: topic refused order 1: schema mismatch \u001b[2J`)
		assert.NotContains(t, shown, "hunter2")
		assert.Contains(t, s.does("messages", "show", messageID(1), "--payload"), `{"secret":"hunter2"}`)

		shown = s.does("messages", "show", messageID(1), "--json")
		assert.NotContains(t, shown, "payload_text")
		assert.Contains(t, shown, `"payload_bytes": 20`)
		shown = s.does("messages", "show", messageID(1), "--json", "--payload")
		assert.Contains(t, shown, `"payload_text": "{\"secret\":\"hunter2\"}"`)
		assert.Contains(t, shown, `"trace": "t-1"`)

		code, _, stderr := s.run("messages", "show", messageID(99))
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, stderr, "there is no message "+messageID(99))
	})
}

// What partners get of an event by a second contract has an id of its own: each of the two leads to all of its rows.
func TestShowContracts(t *testing.T) {
	t.Parallel()
	type placed struct{ Order, Buyer string }
	events := envelope.NewCatalog("ordering")
	envelope.Register[placed](events, envelope.Name("OrderPlaced"), envelope.Published(
		envelope.As(func(p placed) string { return p.Order }), envelope.As(func(p placed) []string { return []string{p.Order, p.Buyer} }, envelope.Version(2)),
	))
	event := envelope.NewEvent(placed{"42", "ada"})
	sealed, err := events.Seal(event, envelope.Source{Aggregate: "Order", ID: "42"}, envelope.Context{})
	require.NoError(t, err)
	rows, err := outbox.Routing{External: []outbox.Route{{Broker: "partner"}}}.WithDefaults().AppendRows(nil, sealed)
	require.NoError(t, err)
	require.Len(t, rows, 3)
	second := rows[2].MessageID.String()
	require.NotEqual(t, event.ID.String(), second)
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight() // whose ids all begin alike
		s.insert(rows...)
		for _, id := range []string{event.ID.String(), second} {
			shown := s.does("messages", "show", id)
			assert.Equal(t, 3, strings.Count(shown, "main / "))
			assert.Contains(t, shown, event.ID.String())
			assert.Contains(t, shown, second)
			assert.Contains(t, s.does("messages", "show", id, "--payload"), `["42","ada"]`)
		}
		assert.Equal(t, 2, strings.Count(s.does("messages", "show", messageID(1)), "main / "))
		// What changes rows takes an id at its word.
		assert.Equal(t, "main: 1 row abandoned\n", s.does("messages", "abandon", "--id", second, "--reason", "the partner has moved"))
		assert.Len(t, lines[api.Record](t, s.does("messages", "list", "--json", "--id", event.ID.String())), 2)
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		ids := func(args ...string) (ids []string) {
			t.Helper()
			for _, r := range lines[api.Record](t, s.does(append([]string{"messages", "list", "--json"}, args...)...)) {
				if r.MessageID != "" {
					ids = append(ids, strings.TrimLeft(r.MessageID[24:], "0"))
				}
			}
			return ids
		}
		assert.Equal(t, []string{"5", "4"}, ids("--broker", "partner", "--status", "failed"))
		assert.ElementsMatch(t, []string{"1", "2", "3"}, ids("--error-class", "permanent"))
		assert.ElementsMatch(t, []string{"7", "7"}, ids("--key", "order-7"))
		assert.Equal(t, []string{"7"}, ids("--id", messageID(7), "--id", messageID(8), "--status", "published", "--key", "order-7"))
		assert.ElementsMatch(t, []string{"13"}, ids("--type", "Ordering.OrderShip*", "--broker", "default"))
		assert.Empty(t, ids("--until", "1h"))
		assert.Len(t, ids("--since", "1h", "--broker", "default"), 13)

		page := lines[map[string]any](t, s.does("messages", "list", "--json", "--broker", "default", "--limit", "5"))
		require.Len(t, page, 6)
		next, ok := page[5]["next"].(string)
		require.True(t, ok)
		assert.Len(t, ids("--broker", "default", "--cursor", next), 8, "the rest")

		code, stdout, stderr := s.run("messages", "list", "--broker", "default", "--limit", "5")
		assert.Zero(t, code)
		assert.Equal(t, 6, strings.Count(stdout, "\n"))
		assert.Contains(t, stderr, "there is more: --database main --cursor ")
		const trace, nowhere = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
		wanted := message(42, "Ordering.OrderRefunded.v1", "ordering::order-42", "partner")
		wanted.AggregateType, wanted.AggregateID, wanted.CorrelationID, wanted.TenantID = "order", "42", "corr-42", "acme"
		wanted.Headers = `{"traceparent":"00-` + trace + `-00f067aa0ba902b7-01"}`
		s.insert(wanted)
		for _, filter := range [][2]string{
			{"--key", "order-42"},
			{"--key", "ordering::order-42"},
			{"--type", "Ordering.OrderRefunded.v1"},
			{"--aggregate", "42"},
			{"--aggregate", "order-42"},
			{"--correlation", "corr-42"},
			{"--tenant", "acme"},
			{"--trace", trace},
		} {
			assert.Equal(t, []string{"42"}, ids(filter[0], filter[1], "--status", "pending", "--since", "1h"), filter)
			code, _, stderr := s.run("messages", "list", filter[0], nowhere)
			assert.Equal(t, exitFailed, code)
			assert.Regexp(t, `^fanout: no message has the [a-z ]+ "`+nowhere+`"`, stderr)
		}
		assert.Equal(t, "main: 1 row abandoned\n", s.does("messages", "abandon", "--correlation", "corr-42", "--aggregate", "order-42", "--tenant", "acme"))
		group := lines[wireGroup](t, s.does("messages", "failures", "--json"))[1]
		assert.ElementsMatch(t, []string{"4", "5"}, ids("--fingerprint", group.Fingerprint))
		code, stdout, stderr = s.run("messages", "list", "--broker", "default", "--status", "failed")
		assert.Zero(t, code)
		assert.Empty(t, stdout)
		assert.Equal(t, "no message matches\n", stderr)
	})
}

// What was published since a time is sent again, under the same ids.
func TestReplaySince(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		assert.Equal(t, "main: 13 rows would be set to be sent again\n", s.does("messages", "replay", "--broker", "default", "--since", "2h", "--dry-run"))
		assert.Equal(t, 13, s.count("status = 'published'"))
		assert.Equal(t, "main: 0 rows set to be sent again\n", s.does("messages", "replay", "--broker", "default", "--until", "2h"))
		assert.Equal(t, "main: 13 rows set to be sent again\n", s.does("messages", "replay", "--broker", "default", "--since", "2h"))
		assert.Zero(t, s.count("status = 'published'"))
		assert.Equal(t, 13, s.count("target_broker = 'default' AND status = 'pending' AND attempts = 0"))

		for _, args := range [][]string{{"--since", "2h"}, {"--broker", "default"}} {
			code, _, stderr := s.run(append([]string{"messages", "replay"}, args...)...)
			assert.Equal(t, exitUsage, code)
			assert.Contains(t, stderr, "replay needs --broker, and a bound: --since, --until or --id")
		}
	})
}

// A key that waits for an operator is listed first, and goes on when it is unblocked.
func TestBlockedAndUnblock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		keys := lines[api.KeyBlock](t, s.does("messages", "blocked", "--json"))
		require.NotEmpty(t, keys)
		byKey := map[string]api.KeyBlock{}
		for _, k := range keys {
			byKey[k.Key] = k
		}
		first := byKey["order-1"]
		assert.Equal(t, "operator", first.Reason)
		assert.Zero(t, first.Until)
		assert.EqualValues(t, 1, first.Followers)
		assert.Equal(t, messageID(1), first.MessageID)
		table := s.does("messages", "blocked")
		assert.Contains(t, table, "when you act")

		_, _, stderr := s.run("messages", "unblock", "order-1")
		assert.Contains(t, stderr, "name the --broker")
		assert.Equal(t, "main: key order-1 of broker partner is blocked\n", s.does("messages", "unblock", "order-1", "--broker", "partner", "--dry-run"))
		assert.Equal(t, "main: key order-1 of broker partner is unblocked\n", s.does("messages", "unblock", "order-1", "--broker", "partner"))
		assert.JSONEq(t, `{"database":"main","changed":false,"audit_id":2}`, s.does("messages", "unblock", "order-1", "--broker", "partner", "--json"))
		assert.NotContains(t, s.does("messages", "blocked"), "order-1 ")
	})
}
