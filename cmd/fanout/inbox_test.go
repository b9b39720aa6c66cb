package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/monitor/api"
)

// rejects makes a dead letter of the nth message of a consumer, as a handler that has failed for
// good does.
func (s *shop) rejects(db *gorm.DB, n int, consumer, payload string, why error) {
	s.Helper()
	m, err := inbox.Decode(fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/orders","type":"Ordering.OrderPlaced.v%d","data":{}}`, messageID(n), n), nil)
	require.NoError(s, err)
	m.Consumer, m.Source = consumer, "ordering::order"
	if payload != "" {
		m.Payload = []byte(payload)
	}
	require.NoError(s, inbox.Reject(s.Context(), db, m, why))
}

func TestInbox(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		assert.Equal(t, "main: applied 0001_inbox\n", s.does("inbox", "migrate"))
		assert.Equal(t, "main: up to date\n", s.does("inbox", "migrate"))
		cfg, err := config.Load(s.config, config.WithUnsetVariables("brokers"))
		require.NoError(t, err)
		db, err := openHandle(cfg.Databases["main"])
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, pool.Close()) })
		for n := 1; n <= 3; n++ {
			s.rejects(db, n, "billing", "", errors.New("no such \x1b customer"))
		}
		s.rejects(db, 4, "sales", "not JSON \xff", errors.New("cannot be read"))

		table := s.does("inbox", "dead-letters")
		assert.Regexp(t, `main +billing +`+messageID(1)+` +Ordering\.OrderPlaced\.v1 +ordering::order +0 +\S+ ago +no such \\u001b customer`, table)
		assert.NotContains(t, table, "\x1b")
		listed := lines[wireDeadLetter](t, s.does("inbox", "dead-letters", "--json", "--consumer", "sales", "--payload"))
		require.Len(t, listed, 1)
		assert.Equal(t, messageID(4), listed[0].MessageID.String())
		assert.Equal(t, "cannot be read", listed[0].LastError.Message)
		assert.Empty(t, listed[0].Payload)
		assert.Equal(t, "not JSON \xff", string(listed[0].PayloadBase64), "each byte of it, for a Protobuf message")
		assert.NotContains(t, s.does("inbox", "dead-letters", "--json"), "payload")
		assert.Len(t, lines[wireDeadLetter](t, s.does("inbox", "dead-letters", "--json", "--type", "Ordering.OrderPlaced.v2")), 1)
		assert.Len(t, lines[wireDeadLetter](t, s.does("inbox", "dead-letters", "--json", "--limit", "2")), 2)

		for _, c := range []struct{ args, stdout, stderr string }{
			{messageID(1) + " " + messageID(4), "main: 1 message redriven\n", "fanout: 1 of 2 messages are no dead letters of consumer billing: they are unknown, handled, or redriven already\n"},
			{messageID(1), "main: 0 messages redriven\n", "fanout: message " + messageID(1) + " is no dead letter of consumer billing: it is unknown, handled, or redriven already\n"},
		} {
			code, stdout, stderr := s.run(append([]string{"inbox", "redrive", "--consumer", "billing"}, strings.Fields(c.args)...)...)
			assert.Equal(t, exitFailed, code)
			assert.Equal(t, c.stdout, stdout)
			assert.Equal(t, c.stderr, stderr)
		}
		for want, args := range map[string]string{
			`there is no consumer "biling" in the table inbox_messages: did you mean "billing"?`:                              "redrive --consumer biling --all",
			`there is no consumer "shipping" in the table inbox_messages: there are ["billing" "sales"]`:                      "dead-letters --consumer shipping",
			`no dead letter has the type "Ordering.OrderPlacd.v3": did you mean "Ordering.OrderPlaced.v3"?`:                   "dead-letters --consumer billing --type Ordering.OrderPlacd.v3",
			`no dead letter has the type "T": there are ["Ordering.OrderPlaced.v2" "Ordering.OrderPlaced.v3"]`:                "redrive --consumer billing --all --type T",
			`message ` + messageID(9) + ` is no dead letter of consumer billing: it is unknown, handled, or redriven already`: "redrive --consumer billing " + messageID(9),
		} {
			code, _, stderr := s.run(append([]string{"inbox"}, strings.Fields(args)...)...)
			assert.Equal(t, exitFailed, code, args)
			assert.Equal(t, "fanout: "+want+"\n", stderr)
		}
		assert.Equal(t, "main: 1 message redriven\n", s.does("inbox", "redrive", "--consumer", "billing", "--all", "--type", "Ordering.OrderPlaced.v2"))
		assert.Equal(t, "main: 1 message redriven\n", s.does("inbox", "redrive", "--consumer", "billing", "--all"))
		assert.Len(t, lines[wireDeadLetter](t, s.does("inbox", "dead-letters", "--json")), 1)

		var trace []string
		for _, e := range lines[api.AuditEntry](t, s.does("audit", "--json")) {
			assert.Equal(t, "cli", e.Via)
			assert.NotEmpty(t, e.Actor)
			assert.NotZero(t, e.EndedAt)
			if e.Rows == 0 && e.Action == "inbox redrive" {
				continue
			}
			trace = append(trace, fmt.Sprintf("%s %d %s", e.Action, e.Rows, e.Filter))
		}
		assert.Equal(t, []string{
			`inbox redrive 1 {"consumer":"billing","table":"inbox_messages"}`,
			`inbox redrive 1 {"consumer":"billing","table":"inbox_messages","type":"Ordering.OrderPlaced.v2"}`,
			`inbox redrive 1 {"consumer":"billing","message_ids":["` + messageID(1) + `","` + messageID(4) + `"],"table":"inbox_messages"}`,
			`inbox reveal 1 {"consumer":"sales","limit":100,"table":"inbox_messages"}`,
		}, trace)
	})
}

func TestInboxWrongUsage(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite", t.TempDir()+"/none.db")
	for want, args := range map[string][]string{
		"--limit is 0: use 1 to":            {"dead-letters", "--limit", "0"},
		"--payload is for --json":           {"dead-letters", "--payload"},
		`"17" is no message id: use a UUID`: {"redrive", "--consumer", "billing", "17"},
		"name the --consumer":               {"redrive", "--all"},
		"give message ids, or --all":        {"redrive", "--consumer", "billing"},
		"and --type only with that":         {"redrive", "--consumer", "billing", "--type", "T", messageID(1)},
	} {
		code, _, stderr := s.run(append([]string{"inbox"}, args...)...)
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, stderr, want)
	}
	code, _, stderr := s.run("inbox", "dead-letters")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, `database "main": inbox: list dead letters of inbox_messages`)
}
