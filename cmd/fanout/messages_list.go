package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// listing is one run of "messages list".
type listing struct {
	cmd         *cobra.Command
	session     *session
	filter      admin.Filter
	fingerprint string
	trace       string
	cursor      string
	limit       int
	bound       time.Duration
	out         *output
	now         time.Time
}

// defaultListTime bounds how long rows are looked at that no index rules out.
const defaultListTime = 30 * time.Second

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages, newest first within each broker and status",
		Long: "List messages, newest first within each broker and status: by the time at which they were written, or finished if they are.\n" +
			"STATE says what happens to a message next that is not finished: due, claimed, backoff, scheduled, behind, blocked, paused,\n" +
			"unconfigured or stranded. WAITS FOR names the message that has to be done first, or the time for which a message waits\n" +
			"(\"fanout messages blocked\" lists the keys that wait).\n\n" +
			"--type (a whole one), --key, --aggregate, --correlation, --tenant and --trace are searched for by index, so the list is complete however\n" +
			"large the table is. Where nothing but --type \"Order*\", --error-class, --fingerprint or times narrow the list, rows are looked at one after\n" +
			"the other for as long as --max-time says; a list that ends there says how far it came and where it goes on, and the command fails.",
		Example: "  fanout messages list --broker partner --status failed,abandoned\n  fanout messages list --key order-42\n" +
			"  fanout messages list --since 2h --error-class permanent --json | jq -r .message_id",
		Args: noArgs,
	}
	target := targetFlags(cmd)
	filters := addFilter(cmd, outbox.Statuses()...)
	filters.withFingerprint(cmd)
	trace := cmd.Flags().String("trace", "", "rows of this trace: its id of 32 hexadecimal digits, or a traceparent")
	bound := cmd.Flags().Duration("max-time", defaultListTime, "most time to look at rows of each database before the list ends where it is")
	limit := cmd.Flags().Int("limit", monitor.DefaultPage, "most messages to list in each database")
	cursor := cmd.Flags().String("cursor", "", "go on where a list ended that said so")
	asJSON := jsonFlag(cmd, jsonLines+"; where there is more, the last one has \"next\", for --cursor")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, err := filters.filter(time.Now(), outbox.Statuses()...)
		if err != nil {
			return err
		}
		if *limit < 1 {
			return usageError{fmt.Errorf("--limit is %d: use at least 1", *limit)}
		}
		if *bound <= 0 {
			return usageError{fmt.Errorf("--max-time is %s: use a positive duration", *bound)}
		}
		if *trace != "" && len(filter.MessageIDs) > 0 {
			return usageError{errors.New("--id names messages, whatever their trace: leave --trace out, or --id")}
		}
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		if *cursor != "" && len(session.Databases())+len(session.failed) > 1 {
			return usageError{errors.New("--cursor goes on in one database: name it with --database")}
		}
		list := &listing{
			cmd: cmd, session: session, filter: filter, fingerprint: filters.fingerprint, trace: *trace, cursor: *cursor, limit: *limit, bound: *bound, now: time.Now(),
			out: newOutput(cmd, *asJSON, "DATABASE", "BROKER", "STATUS", "STATE", "MESSAGE", "TYPE", "KEY", "WRITTEN", "ATTEMPTS", "WAITS FOR", "LAST ERROR"),
		}
		return list.run()
	}
	return cmd
}

func (l *listing) run() error {
	var more []string
	err := l.session.each(func(database string) error {
		next, err := l.database(database)
		switch {
		case next == "":
			return err
		case l.out.asJSON:
			return errors.Join(err, printLine(l.cmd, map[string]string{"database": database, "next": next}))
		case err != nil: // which says where to go on
			return err
		}
		more = append(more, fmt.Sprintf("there is more: --database %s --cursor %s\n", database, next))
		return nil
	})
	nothing := "no message matches"
	if len(more) > 0 {
		nothing = ""
	}
	if err == nil && l.out.found == 0 && nothing != "" && l.cursor == "" {
		if err := l.known(); err != nil {
			return err
		}
	}
	err = l.out.end(err, nothing)
	for _, line := range more {
		l.cmd.PrintErr(line)
	}
	return err
}

// known fails where a name is unknown.
func (l *listing) known() error {
	if l.trace != "" {
		found := false
		for _, database := range l.session.Databases() {
			page, err := l.session.Messages(l.cmd.Context(), database, monitor.MessagesQuery{Trace: l.trace, Limit: 1})
			if err != nil {
				return err
			}
			found = found || len(page.Records) > 0
		}
		if !found {
			return fmt.Errorf("no message has the trace %q", l.trace)
		}
	}
	return l.session.exist(l.cmd.Context(), l.filter, l.fingerprint)
}

// emit shows a row.
func (l *listing) emit(database string, r *admin.Record) error {
	return l.out.add(api.NewRecord(database, r),
		text(database), text(r.Broker), styled(string(r.Status), statusStyle(r.Status)), styled(orDash(string(r.State)), stateStyle(r.State)),
		text(r.MessageID), text(r.Type), text(orDash(r.OrderingKey)),
		text(since(r.CreatedAt, l.now)), textf("%d", r.Attempts), text(waitsFor(r, l.now)), text(failureText(r.Status, agedError(r.LastError, l.now))))
}

// database lists the messages of one database; next is where the list goes on.
func (l *listing) database(database string) (next string, err error) {
	if len(l.filter.MessageIDs) > 0 {
		return "", l.named(database)
	}
	query := monitor.MessagesQuery{Filter: l.filter, Trace: l.trace, Cursor: l.cursor}
	if l.fingerprint != "" && len(query.Filter.Statuses) == 0 {
		query.Filter.Statuses = []outbox.Status{outbox.StatusFailed, outbox.StatusAbandoned}
	}
	scanned, begun := 0, time.Now()
	for left := l.limit; left > 0; {
		query.Limit = min(left, monitor.MaxPage)
		page, err := l.session.Messages(l.cmd.Context(), database, query)
		if err != nil {
			return "", err
		}
		for i := range page.Records {
			if !l.matches(&page.Records[i]) {
				continue
			}
			left--
			if err := l.emit(database, &page.Records[i]); err != nil {
				return "", err
			}
		}
		if page.Next == "" {
			return "", nil
		}
		query.Cursor, scanned = page.Next, scanned+page.Scanned
		if left > 0 && time.Since(begun) >= l.bound {
			return page.Next, fmt.Errorf("%s: looked at %s in %s, %s, and %s; go on with --database %s --cursor %s, look for longer with --max-time, or narrow the list",
				database, rows(admin.Count{N: int64(scanned)}), l.bound, reached(page.Reached), found(l.limit-left), database, page.Next)
		}
	}
	return query.Cursor, nil
}

func (l *listing) matches(r *admin.Record) bool {
	return l.fingerprint == "" || monitor.Fingerprint(r.Broker, r.LastError) == l.fingerprint
}

// named lists the rows of messages that are known by their ids, as far as the other conditions let
// them.
func (l *listing) named(database string) error {
	f, left := &l.filter, l.limit
	for _, id := range f.MessageIDs {
		records, err := l.session.Message(l.cmd.Context(), database, id)
		if err != nil {
			return err
		}
		for i := range records {
			if left == 0 {
				return nil
			}
			if r := &records[i]; selects(f, r) && l.matches(r) {
				left--
				if err := l.emit(database, r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// reached says how far a list came.
func reached(at admin.Position) string {
	text := fmt.Sprintf("as far as the %s ones of broker %s", at.Status, at.Broker)
	if !at.Time.IsZero() {
		text += " that were finished at " + moment(at.Time)
	}
	return text
}

// found says what was found by then.
func found(n int) string {
	if n == 0 {
		return "none of them matches"
	}
	return thousands(int64(n)) + " of them match"
}
