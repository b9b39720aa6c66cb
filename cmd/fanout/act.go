package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// change is a command that changes rows: it counts them, asks, acts and reports.
type change struct {
	verb, past string
	// question precedes the number of rows.
	question string
	// unit is what is counted; empty = rows.
	unit string
	// of says what the question asks about; empty = messages, or units.
	of string
	// broker is set where the command acts broker by broker.
	broker string
	dryRun *bool
	yes    *bool
	asJSON *bool
}

func changeFlags(cmd *cobra.Command, c change) *change {
	c.dryRun = cmd.Flags().Bool("dry-run", false, "only count the rows that would be changed")
	c.yes = cmd.Flags().BoolP("yes", "y", false, fmt.Sprintf("do not ask, however many rows it is (it asks for more than %d)", confirmFrom))
	c.asJSON = jsonFlag(cmd, jsonLines)
	return &c
}

// wireResult is the result of an action in one database.
type wireResult struct {
	Database string           `json:"database"`
	Matched  int64            `json:"matched"`
	More     bool             `json:"more,omitempty"`
	Refused  int64            `json:"refused,omitempty"`
	Changed  int64            `json:"changed"`
	Left     map[string]int64 `json:"left,omitempty"`
	LeftMore bool             `json:"left_more,omitempty"`
	DryRun   bool             `json:"dry_run,omitempty"`
	AuditID  int64            `json:"audit_id,omitempty"`
	Error    string           `json:"error,omitempty"`
}

// do counts the rows and asks, unless --yes was given, and then acts. It fails where nothing is there
// that the filter names.
func (c *change) do(cmd *cobra.Command, session *session, actor monitor.Actor, action monitor.Action) error {
	action.Verb = c.verb
	if *c.dryRun || !*c.yes {
		counting := action
		counting.DryRun = true
		results, err := session.Do(cmd.Context(), actor, counting)
		if *c.dryRun {
			return errors.Join(asUsage(err), c.tell(cmd, results, action.Limit), c.unknown(cmd, session, action, results), session.problem())
		}
		if err != nil {
			return errors.Join(asUsage(err), session.problem())
		}
		if total := within(matched(results), action.Limit, len(results)); total.N > confirmFrom {
			if err := confirm(cmd, c.ask(results, total, action.Filter.Broker)); err != nil {
				return err
			}
		}
	}
	progress := newProgress(cmd.ErrOrStderr(), c.past)
	action.Progress = func(p monitor.Progress) {
		p.Matched = within(p.Matched, action.Limit, 1)
		progress.step(p)
	}
	results, err := session.Do(cmd.Context(), actor, action)
	progress.end()
	return errors.Join(asUsage(err), c.tell(cmd, results, action.Limit), c.unknown(cmd, session, action, results), session.problem())
}

// within is what a limit for each database leaves of a number of rows.
func within(total admin.Count, limit, databases int) admin.Count {
	if most := int64(limit) * int64(databases); limit > 0 && total.N > most {
		return admin.Count{N: most}
	}
	return total
}

// ask is the question before many rows are changed. It names the brokers and the databases.
func (c *change) ask(results []monitor.Result, total admin.Count, broker string) string {
	of := "of all brokers"
	if broker != "" {
		of = "of broker " + broker
	}
	var databases []string
	for _, r := range results {
		if r.Matched.N == 0 {
			continue
		}
		databases = append(databases, r.Database)
		if len(results) > 1 {
			databases[len(databases)-1] += " (" + countText(r.Matched) + ")"
		}
	}
	in := "in database "
	if len(databases) > 1 {
		in = "in databases "
	}
	number := countText(total)
	if all := matched(results); all.N > total.N {
		number += " of " + countText(all)
	}
	what := cmp.Or(c.of, "messages")
	if c.unit != "" {
		what = c.unit + "s"
	}
	return fmt.Sprintf("%s %s %s %s %s%s", c.question, number, what, of, in, strings.Join(databases, ", "))
}

// unknown is the error about what a filter names and is not there. It is looked for where nothing was
// found, and always for message ids.
func (c *change) unknown(cmd *cobra.Command, session *session, action monitor.Action, results []monitor.Result) error {
	filter := action.Filter
	found := matched(results).N > 0
	for _, r := range results {
		if r.Err != nil {
			return nil //nolint:nilerr // which is reported; what is there is not known
		}
		found = found || r.Refused > 0 || len(r.Left) > 0
	}
	switch {
	case len(results) == 0: // it was refused
		return nil
	case found && len(filter.MessageIDs) == 0:
		return nil
	case found:
		filter = admin.Filter{MessageIDs: filter.MessageIDs}
		action.Fingerprint = ""
	}
	return session.exist(cmd.Context(), filter, action.Fingerprint)
}

func matched(results []monitor.Result) (total admin.Count) {
	for _, r := range results {
		total.N += r.Matched.N
		total.More = total.More || r.Matched.More
	}
	return total
}

// tell reports the results, also of an action that failed half-way.
func (c *change) tell(cmd *cobra.Command, results []monitor.Result, limit int) error {
	for _, r := range results {
		if *c.asJSON {
			line := wireResult{
				Database: r.Database, Matched: r.Matched.N, More: r.Matched.More, Refused: r.Refused, Changed: r.Changed,
				Left: r.Left, LeftMore: r.LeftMore, DryRun: *c.dryRun, AuditID: r.AuditID,
			}
			if r.Err != nil {
				line.Error = r.Err.Error()
			}
			if err := printLine(cmd, line); err != nil {
				return err
			}
			continue
		}
		if r.Err == nil || r.Changed > 0 {
			cmd.Printf("%s: %s\n", r.Database, printable(c.sentence(r, limit)))
		}
		if r.Refused > 0 {
			cmd.Printf("%s: %s left out: malformed, so a relay would abandon them again; correct them in the table, then requeue them with --error-class %s\n",
				r.Database, rows(admin.Count{N: r.Refused}), outbox.ClassMalformed)
		}
	}
	return nil
}

// amount is a number of rows, or of what else the command changes.
func (c *change) amount(n admin.Count) string {
	switch {
	case c.unit == "":
		return rows(n)
	case n.N == 1 && !n.More:
		return "1 " + c.unit
	default:
		return countText(n) + " " + c.unit + "s"
	}
}

func (c *change) sentence(r monitor.Result, limit int) string {
	of := func(n admin.Count) string {
		if c.broker == "" {
			return c.amount(n)
		}
		return c.amount(n) + " of broker " + c.broker
	}
	changed := admin.Count{N: r.Changed}
	can, upTo := changeable(&r)
	limited := limit > 0 && (can.N > int64(limit) || can.More)
	switch {
	case *c.dryRun && limited:
		return fmt.Sprintf("%s of %s%s would be %s%s", thousands(int64(limit)), upTo, of(can), c.past, c.leftAlone(&r))
	case *c.dryRun:
		return fmt.Sprintf("%s%s would be %s%s", upTo, of(can), c.past, c.leftAlone(&r))
	case r.Err != nil:
		return fmt.Sprintf("%s %s before an error; repeat the command to go on", of(changed), c.past)
	case limited && r.Changed >= int64(limit):
		left := admin.Count{N: can.N - r.Changed, More: can.More}
		return fmt.Sprintf("%s of %s%s %s; %s%s left: run the command again, or raise --limit%s",
			thousands(r.Changed), upTo, of(can), c.past, upTo, countText(left), c.leftAlone(&r))
	case !can.More && !r.LeftMore && r.Changed < can.N:
		return fmt.Sprintf("%s of %s %s; the others have changed meanwhile%s", thousands(r.Changed), of(can), c.past, c.leftAlone(&r))
	default:
		return fmt.Sprintf("%s %s%s", of(changed), c.past, c.leftAlone(&r))
	}
}

// changeable is how many rows an action can change: those that match and are left alone are not changed by another run
// either. Where not all of these are known, it is "up to" so many.
func changeable(r *monitor.Result) (can admin.Count, upTo string) {
	can = admin.Count{N: max(r.Matched.N-spared(r), 0), More: r.Matched.More}
	if r.LeftMore && !can.More {
		upTo = "up to "
	}
	return can, upTo
}

// spared is how many of the rows that match were left alone.
func spared(r *monitor.Result) (n int64) {
	for what, rows := range r.Left {
		if what != string(outbox.StateClaimed) && !outbox.Status(what).Valid() {
			n += rows
		}
	}
	return n
}

// leftAlone says which rows an action leaves as they are, and why.
func (c *change) leftAlone(r *monitor.Result) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.Left)) {
		n := countText(admin.Count{N: r.Left[what], More: r.LeftMore})
		switch what {
		case string(outbox.StateClaimed):
			parts = append(parts, n+" claimed by a worker, whose lease has not expired")
		case string(outbox.StateBehind):
			parts = append(parts, n+" behind an earlier message of their key (WAITS FOR in \"fanout messages list\")")
		case string(outbox.StatusPending):
			if c.verb == monitor.VerbRequeue {
				what += " (--status pending takes those that wait for a time)"
			}
			parts = append(parts, n+" "+what)
		default:
			parts = append(parts, n+" "+what)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; left alone: " + strings.Join(parts, ", ")
}
