package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		assert.Equal(t, "main: broker partner is paused\n", s.does("broker", "pause", "partner", "--reason", "they move", "--by", "ada"))
		assert.Equal(t, "main: broker partner was paused already\n", s.does("broker", "pause", "partner"))
		status := s.does("status")
		assert.Contains(t, status, "partner (paused)")
		assert.Contains(t, status, "main: broker partner has been paused for <1s by ada: they move (fanout broker resume partner)\n")
		assert.Contains(t, s.does("status", "--json"), `"reason": "they move"`)
		assert.Equal(t, "main: broker partner goes on\n", s.does("broker", "resume", "partner"))
		assert.Equal(t, "main: broker partner was not paused\n", s.does("broker", "resume", "partner"))
		entries := lines[wireAudit](t, s.does("audit", "--json", "--limit", "3"))
		require.Len(t, entries, 3, "four actions, the newest first")
		assert.Equal(t, "resume", entries[0].Action)
		assert.EqualValues(t, 0, entries[0].Rows)
		assert.EqualValues(t, 1, entries[1].Rows)
		assert.Equal(t, "pause", lines[wireAudit](t, s.does("audit", "--json", "--before", fmt.Sprint(entries[2].ID)))[0].Action)

		for _, verb := range []string{"pause", "resume"} {
			code, _, stderr := s.run("broker", verb, "partnr")
			assert.Equal(t, exitUsage, code)
			assert.Contains(t, stderr, `the configuration uses no broker "partnr": it has ["default" "partner"]`)
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
		assert.Equal(t, "main: 2 rows removed\n", s.does("purge", "--abandoned-before", "1us", "--broker", "partner", "--limit", "2"))
		assert.Equal(t, 1, s.count("status = 'abandoned'"))
		assert.EqualValues(t, 13, lines[wireAudit](t, s.does("audit", "--json"))[1].Rows)
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
		assert.Contains(t, stderr, "Give up 101 rows? Nobody can be asked here: repeat it with --yes, or look first with --dry-run")
		assert.Equal(t, 101, s.count("status = 'pending'"))
		assert.Equal(t, "main: 100 rows abandoned\n", s.does(append(args, "--limit", "100")...))
		assert.Equal(t, "main: 1 row abandoned\n", s.does(args...))
		assert.Equal(t, "main: 101 rows requeued\n", s.does("messages", "requeue", "--broker", "default", "--yes"))
	})
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	s := &shop{place: newPlace(t, "sqlite", "none.db")}
	for want, args := range map[string][]string{
		`--since is "yesterday": use an age such as 2h or 7d, or a time such as 2`: {"messages", "list", "--since", "yesterday"},
		`--until is "5": use an age`:   {"messages", "requeue", "--until", "5"},
		`--since is "-2h": use an age`: {"messages", "requeue", "--since", "-2h"},
		`nothing lies between --since 1h and --until 2h: the first must be the earlier one`:          {"messages", "list", "--since", "1h", "--until", "2h"},
		`--status is "publishd": use pending, processing, failed, published, abandoned`:              {"messages", "list", "--status", "publishd"},
		`--status is "published": use pending, failed, abandoned`:                                    {"messages", "requeue", "--status", "published"},
		`--id: "17" is no message id: use a UUID`:                                                    {"messages", "list", "--id", "17"},
		`"17" is no message id: use a UUID`:                                                          {"messages", "show", "17"},
		`--fingerprint is "xyz": use the 12 hexadecimal digits`:                                      {"messages", "requeue", "--fingerprint", "xyz"},
		`--limit is 0: use at least 1`:                                                               {"messages", "list", "--limit", "0"},
		`--limit is -1: use a positive number`:                                                       {"messages", "abandon", "--broker", "b", "--limit", "-1"},
		`requeue needs to know which messages`:                                                       {"messages", "requeue"},
		`--published-before is "-1h": use an age such as 24h or 30d`:                                 {"purge", "--published-before", "-1h"},
		`--limit is 0 and --before is 0`:                                                             {"audit", "--limit", "0"},
		`the configuration has no database "x": it has ["main"]`:                                     {"status", "--database", "x"},
		`"fanout messages release" takes one ordering key: see "fanout messages release --help"`:     {"messages", "release"},
		`unknown argument "x" for "fanout messages list": see "fanout messages list --help"`:         {"messages", "list", "x"},
		`"fanout messages show" takes the id of one message: see "fanout messages show --help"`:      {"messages", "show"},
		`unknown flag: --nonsense`:                                                                   {"workers", "--nonsense"},
		`invalid argument "many" for "--limit" flag: strconv.ParseInt: parsing "many": invalid synt`: {"messages", "list", "--limit", "many"},
	} {
		code, stdout, stderr := s.run(args...)
		assert.Equal(t, exitUsage, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, want)
	}
}
