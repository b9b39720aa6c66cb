package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		assert.Equal(t, "main: broker partner is paused\n", s.does("broker", "pause", "partner", "--reason", "they move", "--by", "ada"))
		assert.Equal(t, "main: broker partner was paused already\n", s.does("broker", "pause", "partner"))
		status := s.does("status")
		assert.Contains(t, status, "partner (paused)")
		assert.Regexp(t, `main: broker partner has been paused for \S+ by ada: they move \(fanout broker resume partner\)\n`, status)
		assert.Contains(t, s.does("status", "--json"), `"reason": "they move"`)
		assert.Equal(t, "main: broker partner is resumed\n", s.does("broker", "resume", "partner"))
		assert.Equal(t, "main: broker partner was not paused\n", s.does("broker", "resume", "partner"))
		entries := lines[api.AuditEntry](t, s.does("audit", "--json", "--limit", "3"))
		require.Len(t, entries, 3, "four actions, the newest first")
		assert.Equal(t, "resume", entries[0].Action)
		assert.EqualValues(t, 0, entries[0].Rows)
		assert.EqualValues(t, 1, entries[1].Rows)
		assert.Equal(t, "pause", lines[api.AuditEntry](t, s.does("audit", "--json", "--before", fmt.Sprint(entries[2].ID)))[0].Action)

		for _, verb := range []string{"pause", "resume"} {
			code, _, stderr := s.run("broker", verb, "partnr")
			assert.Equal(t, exitFailed, code)
			assert.Equal(t, "fanout: there is no broker \"partnr\", in the configuration or in a table: did you mean \"partner\"?\n", stderr)
		}
	})
}

func TestPurge(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		assert.Equal(t, "main: 0 rows would be removed\n", s.does("purge", "--dry-run"), "by the configuration nothing is old enough")
		assert.Equal(t, "main: 13 rows would be removed\n", s.does("purge", "--published-before", "1us", "--dry-run"))
		assert.Equal(t, 13, s.count("status = 'published'"))
		assert.Equal(t, "main: 13 rows removed\n", s.does("purge", "--published-before", "1us"))
		assert.Zero(t, s.count("status = 'published'"))
		assert.Equal(t, 3, s.count("status = 'abandoned'"))
		assert.Equal(t, "main: 0 rows removed\n", s.does("purge", "--abandoned-before", "1us", "--broker", "partner"), "their keys wait for an operator")
		s.unblockAll()
		assert.Equal(t, "main: 2 rows removed\n", s.does("purge", "--abandoned-before", "1us", "--broker", "partner", "--limit", "2"))
		assert.Equal(t, 1, s.count("status = 'abandoned'"))
		audited := lines[api.AuditEntry](t, s.does("audit", "--json"))
		assert.EqualValues(t, 13, audited[len(audited)-1].Rows)
	})
}

// Where nobody can be asked, more than 100 rows need a word.
func TestManyRowsNeedAWord(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		for n := range 101 {
			s.write(n, "T", fmt.Sprint("k", n), "default")
		}
		args := []string{"messages", "abandon", "--broker", "default"}
		code, _, stderr := s.run(args...)
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, stderr, "Abandon 101 messages of broker default in database main? There is no terminal to ask on: repeat the command with --yes, or count first with --dry-run")
		assert.Equal(t, 101, s.count("status = 'pending'"))
		assert.Equal(t, "main: 100 of 101 rows would be abandoned\n", s.does(append(args, "--limit", "100", "--dry-run")...))
		assert.Equal(t, "main: 100 of 101 rows abandoned; 1 left: run the command again, or raise --limit\n", s.does(append(args, "--limit", "100")...))
		assert.Equal(t, "main: 1 row abandoned\n", s.does(args...))
		assert.Equal(t, "main: 101 rows requeued\n", s.does("messages", "requeue", "--broker", "default", "--yes"))
	})
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	s := &shop{place: newPlace(t, "sqlite", "none.db")}
	for want, args := range map[string][]string{
		`--since is "yesterday": use an age such as 2h or 7d, or a time such as 2`:              {"messages", "list", "--since", "yesterday"},
		`nothing lies between --since 1h and --until 2h: the first must be the earlier one`:     {"messages", "list", "--since", "1h", "--until", "2h"},
		`--status is "publishd": use pending, processing, failed, published, abandoned`:         {"messages", "list", "--status", "publishd"},
		`--status is "published": use pending, processing, failed, abandoned`:                   {"messages", "requeue", "--status", "published"},
		`--id: "17" is no message id: use a UUID`:                                               {"messages", "list", "--id", "17"},
		`--fingerprint is "xyz": use the 12 hexadecimal digits`:                                 {"messages", "requeue", "--fingerprint", "xyz"},
		`--limit is 0: use at least 1`:                                                          {"messages", "list", "--limit", "0"},
		`--limit is -1: use a positive number`:                                                  {"messages", "abandon", "--broker", "b", "--limit", "-1"},
		`requeue needs to know which messages`:                                                  {"messages", "requeue"},
		`--published-before is "-1h": use an age such as 24h or 30d`:                            {"purge", "--published-before", "-1h"},
		`--limit is 0 and --before is 0`:                                                        {"audit", "--limit", "0"},
		`the configuration has no database "x": it has ["main"]`:                                {"status", "--database", "x"},
		`unblock needs to know which messages: name a --broker`:                                 {"messages", "unblock"},
		`unknown argument "x" for "fanout messages list": see "fanout messages list --help"`:    {"messages", "list", "x"},
		`"fanout messages show" takes the id of one message: see "fanout messages show --help"`: {"messages", "show"},
	} {
		code, stdout, stderr := s.run(args...)
		assert.Equal(t, exitUsage, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, want)
	}
}

// By the windows of the configuration each broker has its own, also one that was removed.
func TestPurgeByTheConfiguration(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		s.write(30, "T", "", "old")
		s.complete("old", func(string) *outbox.LastError { return nil })
		s.unblockAll()
		source, err := os.ReadFile(s.config)
		require.NoError(t, err)
		changed := strings.Replace(string(source), `_PROJECT}"`, `_PROJECT}", retention: {abandoned: 1us}`, 1) + "cleanup: {published_retention: 2us}\n"
		require.NoError(t, os.WriteFile(s.config, []byte(changed), 0o600))
		assert.Equal(t, "main: 13 rows of broker default would be removed\nmain: 1 row of broker old would be removed\nmain: 3 rows of broker partner would be removed\n",
			s.does("purge", "--dry-run"))
		assert.Equal(t, "main: 13 rows of broker default removed\nmain: 1 row of broker old removed\nmain: 3 rows of broker partner removed\n", s.does("purge"))
		assert.Zero(t, s.count("finished_at IS NOT NULL"))
	})
}

// A database that does not answer keeps nobody from the others, and the exit code tells.
func TestOneOfTwoDatabases(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	s.badNight()
	source, err := os.ReadFile(s.config)
	require.NoError(t, err)
	changed := strings.Replace(string(source), "databases: {", "databases: {east: {driver: postgres, dsn: 'postgres://ada:hunter2@127.0.0.1:1/none?connect_timeout=5'}, ", 1)
	require.NoError(t, os.WriteFile(s.config, []byte(changed), 0o600))
	for _, args := range []string{"status", "messages list", "messages failures", "messages requeue --error-class permanent", "workers", "broker pause partner"} {
		code, stdout, stderr := s.run(strings.Fields(args)...)
		assert.Equal(t, exitFailed, code, args)
		assert.Contains(t, stderr, `fanout: database "east": postgres: cannot reach the database`, args)
		assert.NotContains(t, stdout+stderr, "hunter2")
		assert.NotContains(t, stderr, `\u00`, "the driver's lines are one")
		if args != "workers" {
			assert.Contains(t, stdout, "main", args)
		}
		code, _, stderr = s.run(append(strings.Fields(args), "--database", "main")...)
		assert.Zero(t, code, stderr)
	}
	code, stdout, _ := s.run("trace", messageID(1), "--json")
	assert.Equal(t, exitFailed, code)
	var trace api.Trace
	require.NoError(t, json.Unmarshal([]byte(stdout), &trace))
	assert.Len(t, trace.Messages, 1)
	require.Len(t, trace.Unasked, 1, "a script that reads the answer alone must not take it for all")
	assert.Equal(t, "east", trace.Unasked[0].Database)
	code, stdout, stderr := s.run("trace", messageID(99), "--json")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stdout, "no row of database main has")
	assert.Equal(t, 1, strings.Count(stderr, "cannot reach the database"), stderr)
	assert.Contains(t, func() string { _, stdout, _ := s.run("status"); return stdout }(), "east      -")
	code, _, stderr = s.run("messages", "list", "--cursor", "x")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, "--cursor goes on in one database: name it with --database")
	code, _, stderr = s.run("messages", "list", "--cursor", "x", "--database", "main")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, "the cursor is none that was given out")
}

// What a requeue leaves alone is not to be requeued by another run, and is not said to have changed, however much of it there is.
func TestRequeueOfRowsThatWaitForNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.thousands()
		const due = 10_002 // more than an action looks at to say what it leaves
		rows := make([]outbox.Row, due)
		for n := range rows {
			rows[n] = message(n+1, "T", fmt.Sprint("k-", n), "default")
			rows[n].Payload = []byte("{}")
		}
		s.insert(rows...)
		requeue := []string{"messages", "requeue", "--status", "pending", "--broker", "default", "--yes"}
		assert.Equal(t, "main: up to 2 rows would be requeued; left alone: 10,000+ due\n", s.does(append(requeue, "--dry-run")...))
		assert.Equal(t, "main: 0 rows requeued; left alone: 10,000+ due\n", s.does(requeue...))
		assert.Equal(t, "main: 0 rows requeued; left alone: 10,000+ due\n", s.does(append(requeue, "--limit", "1")...))
		assert.JSONEq(t, `{"database":"main","matched":10002,"changed":0,"left":{"due":10000},"left_more":true,"audit_id":3}`, s.does(append(requeue, "--json")...))

		code, stdout, stderr := s.run("messages", "list", "--status", "pending", "--until", "1h", "--max-time", "1ns")
		assert.Equal(t, exitFailed, code)
		assert.Empty(t, stdout)
		assert.NotContains(t, stderr, "no message matches", "the rest was not looked at")
		assert.Contains(t, stderr, "main: looked at 5,000 rows in 1ns")
		assert.Contains(t, stderr, "go on with --database main --cursor ")

		s.write(due+1, "Few", "few", "partner")
		few := []string{"messages", "requeue", "--status", "pending", "--broker", "partner", "--yes"}
		assert.Equal(t, "main: 0 rows would be requeued; left alone: 1 due\n", s.does(append(few, "--dry-run")...))
		assert.Equal(t, "main: 0 rows requeued; left alone: 1 due\n", s.does(few...))
	})
}
