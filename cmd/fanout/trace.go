package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func traceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace TERM",
		Short: "Where is order 42? Show the whole way of messages",
		Long: "Show the whole way of messages: each broker's row with its state, what it waits for and what to do about it, what the\n" +
			"consumers of the configuration did with it, what caused it and what it caused, in the order in which they were written.\n\n" +
			"TERM is a message id, an ordering key (ordering::order-42, or order-42), the id of an aggregate (42), a correlation id, the\n" +
			"id of a cause, or a trace id. With --by it is one of these alone, or a tenant or an event type, which give lists. The\n" +
			"search is exact and uses indexes. The command fails where nothing was found, or where not all could be asked.",
		Example: "  fanout trace order-42\n  fanout trace 0199f3a1-7c55-7b1e-9d51-3f6f0c1b2a3d --json\n  fanout trace acme --by tenant",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{fmt.Errorf("%q takes one term: see \"%s --help\"", cmd.CommandPath(), cmd.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	target := targetFlags(cmd)
	var words []string
	for _, by := range admin.FindBys() {
		words = append(words, string(by))
	}
	by := cmd.Flags().StringSlice("by", nil, "what TERM names: "+strings.Join(words, ", ")+" (default: any of the first six)")
	completeFixed(cmd, "by", words...)
	asJSON := jsonFlag(cmd, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		query := monitor.TraceQuery{Term: args[0]}
		for _, word := range *by {
			if !slices.Contains(words, word) {
				return usageError{fmt.Errorf("--by is %q: use %s", word, strings.Join(words, ", "))}
			}
			query.By = append(query.By, admin.FindBy(word))
		}
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		trace, err := session.Trace(cmd.Context(), query)
		if err != nil {
			return asUsage(err)
		}
		for _, name := range slices.Sorted(maps.Keys(session.failed)) {
			trace.Unasked = append(trace.Unasked, api.Unasked{Database: name, Error: session.failed[name].Error()})
		}
		err = incomplete(&trace)
		if *asJSON {
			return errors.Join(err, printJSON(cmd, trace))
		}
		printTrace(cmd, &trace, time.Now())
		return err
	}
	return cmd
}

// incomplete is the error of an answer that does not tell all, or nothing.
func incomplete(trace *api.Trace) error {
	var problems []error
	for _, u := range trace.Unasked {
		if u.Consumer != "" {
			problems = append(problems, fmt.Errorf("consumer %s was not asked: %s", u.Consumer, u.Error))
		} else {
			problems = append(problems, fmt.Errorf("database %s was not asked: %s", u.Database, strings.TrimPrefix(u.Error, "fanout: ")))
		}
	}
	if trace.Nothing != "" {
		problems = append(problems, errors.New(trace.Nothing))
	}
	return errors.Join(problems...)
}

// printTrace shows messages as a tree, in the order in which they were written.
func printTrace(cmd *cobra.Command, trace *api.Trace, now time.Time) {
	out := cmd.OutOrStdout()
	colour := colourful(out)
	put := func(depth int, what string, as style) {
		line := &table{colour: colour}
		line.add(styled(strings.Repeat("  ", depth)+what, as))
		_ = line.print(out) // as with every line that a command prints
	}
	for i := range trace.Messages {
		m := &trace.Messages[i]
		if i > 0 {
			cmd.Println()
		}
		put(0, fmt.Sprintf("%s  %s", m.Type, m.MessageID), bold)
		facts := []string{"written " + moment(m.CreatedAt) + " (" + since(m.CreatedAt, now) + ") in database " + m.Database}
		for _, fact := range []struct{ name, value string }{{"key", m.Key}, {"correlation", m.CorrelationID}, {"caused by", m.CausationID}} {
			if fact.value != "" {
				facts = append(facts, fact.name+" "+fact.value)
			}
		}
		if len(m.By) == 0 {
			facts = append(facts, "not named by the term: of the same process")
		}
		for _, fact := range facts {
			put(1, fact, dim)
		}
		for j := range m.Rows {
			printRow(put, &m.Rows[j])
		}
		for _, broker := range m.NotKept {
			put(1, broker+": no row", dim)
			put(2, "it was delivered, after which its row is not kept (keep: false), or it was not written for this broker", plain)
		}
	}
	if trace.More {
		cmd.PrintErrln("there are more messages: give a term that names fewer, or --by and --database")
	}
}

// printRow shows a message on its way to one broker.
func printRow(put func(depth int, what string, as style), row *api.TracedRow) {
	as := plain
	switch row.Step {
	case api.StepAbandoned, api.StepDeadLetter, api.Step(outbox.StateBlocked), api.Step(outbox.StateStranded), api.Step(outbox.StateUnconfigured):
		as = red
	case api.StepPublished, api.StepQueued, api.StepRunning, api.StepDone: // all is well
	case api.StepFailing, api.Step(outbox.StateBackoff), api.Step(outbox.StatePaused), api.Step(outbox.StateUnavailable):
		as = yellow
	}
	put(1, fmt.Sprintf("%s: %s", row.Row.Broker, row.Step), as)
	put(2, row.Says, plain)
	if row.Row.BrokerMessageID != "" {
		put(2, "the broker's id is "+row.Row.BrokerMessageID+", in "+row.Row.Stream, plain)
	}
	if row.Row.LastError != nil {
		put(2, "last error: "+failureText(row.Row.Status, shorten(errorText((*outbox.LastError)(row.Row.LastError)))), plain)
	}
	if row.Remedy != "" {
		put(2, "→ "+row.Remedy, bold)
	}
	for _, c := range row.Consumers {
		put(2, fmt.Sprintf("consumer %s: %s: %s", c.Consumer, c.Step, c.Says), plain)
		if c.LastError != "" {
			put(3, "last error: "+shorten(c.LastError), plain)
		}
		if c.Remedy != "" {
			put(3, "→ "+c.Remedy, bold)
		}
	}
}
