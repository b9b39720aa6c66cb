package main

import (
	"errors"
	"fmt"

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
	// broker is set where the command acts broker by broker.
	broker string
	// unit is what is counted; empty = rows.
	unit   string
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
	Database string `json:"database"`
	Matched  int64  `json:"matched"`
	More     bool   `json:"more,omitempty"`
	Refused  int64  `json:"refused,omitempty"`
	Changed  int64  `json:"changed"`
	DryRun   bool   `json:"dry_run,omitempty"`
	AuditID  int64  `json:"audit_id,omitempty"`
	Error    string `json:"error,omitempty"`
}

// do counts the rows and asks, unless --yes was given, and then acts.
func (c *change) do(cmd *cobra.Command, session *session, actor monitor.Actor, action monitor.Action) error {
	action.Verb = c.verb
	if *c.dryRun || !*c.yes {
		counting := action
		counting.DryRun = true
		results, err := session.Do(cmd.Context(), actor, counting)
		if *c.dryRun {
			return errors.Join(asUsage(err), c.tell(cmd, results), session.problem())
		}
		if err != nil {
			return errors.Join(asUsage(err), session.problem())
		}
		if total := matched(results); total.N > confirmFrom {
			if err := confirm(cmd, fmt.Sprintf("%s %s", c.question, c.amount(total))); err != nil {
				return err
			}
		}
	}
	progress := newProgress(cmd.ErrOrStderr(), c.past)
	action.Progress = progress.step
	results, err := session.Do(cmd.Context(), actor, action)
	progress.end()
	return errors.Join(asUsage(err), c.tell(cmd, results), session.problem())
}

func matched(results []monitor.Result) (total admin.Count) {
	for _, r := range results {
		total.N += r.Matched.N
		total.More = total.More || r.Matched.More
	}
	return total
}

// tell reports the results, also of an action that failed half-way.
func (c *change) tell(cmd *cobra.Command, results []monitor.Result) error {
	for _, r := range results {
		if *c.asJSON {
			line := wireResult{
				Database: r.Database, Matched: r.Matched.N, More: r.Matched.More, Refused: r.Refused, Changed: r.Changed, DryRun: *c.dryRun, AuditID: r.AuditID,
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
			cmd.Printf("%s: %s\n", r.Database, printable(c.sentence(r)))
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

func (c *change) sentence(r monitor.Result) string {
	of := func(n admin.Count) string {
		if c.broker == "" {
			return c.amount(n)
		}
		return c.amount(n) + " of broker " + c.broker
	}
	changed := admin.Count{N: r.Changed}
	switch {
	case *c.dryRun:
		return fmt.Sprintf("%s would be %s", of(r.Matched), c.past)
	case r.Err != nil:
		return fmt.Sprintf("%s %s before an error; repeat the command to go on", of(changed), c.past)
	case !r.Matched.More && r.Changed < r.Matched.N:
		return fmt.Sprintf("%s of %s %s; the others are claimed, wait for an earlier message of their key, or have changed meanwhile",
			thousands(r.Changed), of(r.Matched), c.past)
	default:
		return fmt.Sprintf("%s %s", of(changed), c.past)
	}
}
