package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// deed is how an action that changes rows is asked for and told of.
type deed struct {
	verb, past string
	// question begins the one that is asked; the number of rows follows.
	question string
	// broker is named where one action is done broker by broker.
	broker string
	dryRun *bool
	yes    *bool
	asJSON *bool
}

func deedFlags(cmd *cobra.Command, d deed) *deed {
	d.dryRun = cmd.Flags().Bool("dry-run", false, "only count the rows that would be changed")
	d.yes = cmd.Flags().BoolP("yes", "y", false, fmt.Sprintf("do not ask, however many rows it is (it asks for more than %d)", confirmFrom))
	d.asJSON = jsonFlag(cmd, jsonLines)
	return &d
}

// wireResult is what became of an action in one database.
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

// do counts first, unless nobody wants to know, asks, and does it.
func (d *deed) do(cmd *cobra.Command, session *session, actor monitor.Actor, action monitor.Action) error {
	action.Verb = d.verb
	if *d.dryRun || !*d.yes {
		counting := action
		counting.DryRun = true
		results, err := session.Do(cmd.Context(), actor, counting)
		if *d.dryRun {
			return errors.Join(asUsage(err), d.tell(cmd, results), session.problem())
		}
		if err != nil { // what cannot be counted is not changed
			return errors.Join(asUsage(err), session.problem())
		}
		if total := matched(results); total.N > confirmFrom {
			if err := confirm(cmd, fmt.Sprintf("%s %s", d.question, rows(total))); err != nil {
				return err
			}
		}
	}
	progress := newProgress(cmd.ErrOrStderr(), d.past)
	action.Progress = progress.step
	results, err := session.Do(cmd.Context(), actor, action)
	progress.end()
	return errors.Join(asUsage(err), d.tell(cmd, results), session.problem())
}

func matched(results []monitor.Result) (total admin.Count) {
	for _, r := range results {
		total.N += r.Matched.N
		total.More = total.More || r.Matched.More
	}
	return total
}

// tell says what became of it, also where it failed in the middle.
func (d *deed) tell(cmd *cobra.Command, results []monitor.Result) error {
	for _, r := range results {
		if *d.asJSON {
			line := wireResult{
				Database: r.Database, Matched: r.Matched.N, More: r.Matched.More, Refused: r.Refused, Changed: r.Changed, DryRun: *d.dryRun, AuditID: r.AuditID,
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
			cmd.Printf("%s: %s\n", r.Database, printable(d.sentence(r)))
		}
		if r.Refused > 0 {
			cmd.Printf("%s: %s left out: malformed, so that a relay would abandon it again; correct it in the table, then requeue it with --error-class %s\n",
				r.Database, rows(admin.Count{N: r.Refused}), outbox.ClassMalformed)
		}
	}
	return nil
}

func (d *deed) sentence(r monitor.Result) string {
	of := func(c admin.Count) string {
		if d.broker == "" {
			return rows(c)
		}
		return rows(c) + " of broker " + d.broker
	}
	changed := admin.Count{N: r.Changed}
	switch {
	case *d.dryRun:
		return fmt.Sprintf("%s would be %s", of(r.Matched), d.past)
	case r.Err != nil:
		return fmt.Sprintf("%s %s before it ended with an error; to go on, repeat it", of(changed), d.past)
	case !r.Matched.More && r.Changed < r.Matched.N:
		return fmt.Sprintf("%s of %s %s; the others are in a worker's hands, wait for an earlier message of their key, or have changed meanwhile",
			thousands(r.Changed), of(r.Matched), d.past)
	default:
		return fmt.Sprintf("%s %s", of(changed), d.past)
	}
}
