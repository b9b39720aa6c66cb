package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// databaseStatus is one database of "status --json".
type databaseStatus struct {
	Status  string                  `json:"status"` // ok or error
	Error   string                  `json:"error,omitempty"`
	Counts  map[outbox.Status]int64 `json:"counts,omitempty"`
	Brokers map[string]brokerStatus `json:"brokers,omitempty"`
}

type brokerStatus struct {
	Counts               map[outbox.Status]int64 `json:"counts"`
	OldestPendingSeconds float64                 `json:"oldest_pending_seconds"`
	LastError            string                  `json:"last_error,omitempty"`
	// Paused is set while an operator has paused the broker.
	Paused *pauseStatus `json:"paused,omitempty"`
	// Unknown is true for rows of a broker that the configuration does not have: nobody delivers them.
	Unknown bool `json:"unknown,omitempty"`
}

// pauseStatus is why nothing is delivered to a broker.
type pauseStatus struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of every broker's rows",
		Args:  noArgs,
	}
	path := configFlag(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object")
	watch := cmd.Flags().BoolP("watch", "w", false, "repeat every two seconds")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load(cmd, *path)
		if err != nil {
			return err
		}
		for {
			status, failed := collect(cmd.Context(), cfg)
			if *asJSON {
				err = printJSON(cmd, status)
			} else {
				err = printTable(cmd, status)
			}
			if !*watch {
				return errors.Join(err, failed)
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-time.After(2 * time.Second):
			}
		}
	}
	return cmd
}

// collect asks every database. One that cannot be asked answers with its error, for itself only.
func collect(ctx context.Context, cfg *config.Config) (map[string]databaseStatus, error) {
	result := make(map[string]databaseStatus, len(cfg.Databases))
	var problems []error
	for name := range cfg.Databases {
		counts, pauses, err := ask(ctx, cfg, name)
		if err != nil {
			problems = append(problems, err)
			result[name] = databaseStatus{Status: "error", Error: err.Error()}
			continue
		}
		result[name] = summarise(cfg, counts, pauses)
	}
	return result, errors.Join(problems...)
}

func ask(ctx context.Context, cfg *config.Config, name string) ([]outbox.BrokerCounts, []outbox.Pause, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	store, err := fanout.OpenStore(ctx, cfg, name)
	if err != nil {
		return nil, nil, err
	}
	defer store.Close()
	counts, err := store.Counts(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("database %q: %w", name, err)
	}
	pauses, err := store.Pauses(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("database %q: %w", name, err)
	}
	return counts, pauses, nil
}

func summarise(cfg *config.Config, counts []outbox.BrokerCounts, pauses []outbox.Pause) databaseStatus {
	tally, paused := outbox.Tally{}, map[string]*pauseStatus{}
	for _, p := range pauses {
		tally.Add(p.Broker, outbox.StatusPending, 0, 0) // a broker without rows is shown, too
		paused[p.Broker] = &pauseStatus{Since: p.Since, By: p.By, Reason: p.Reason}
	}
	for _, broker := range cfg.BrokerNames() {
		tally.Add(broker, outbox.StatusPending, 0, 0)
	}
	status := databaseStatus{Status: "ok", Counts: map[outbox.Status]int64{}, Brokers: map[string]brokerStatus{}}
	for _, s := range outbox.Statuses() {
		status.Counts[s] = 0
	}
	for _, entry := range append(tally.Brokers(), counts...) {
		for s, n := range entry.Counts {
			status.Counts[s] += n
		}
		status.Brokers[entry.Broker] = brokerStatus{
			Counts: entry.Counts, OldestPendingSeconds: entry.OldestPending.Seconds(), LastError: entry.LastError, Paused: paused[entry.Broker],
			Unknown: !slices.Contains(cfg.BrokerNames(), entry.Broker),
		}
	}
	return status
}

func printJSON(cmd *cobra.Command, value any) error {
	encoder := json.NewEncoder(cmd.OutOrStdout())
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printTable(cmd *cobra.Command, status map[string]databaseStatus) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "DATABASE\tBROKER\tPENDING\tPROCESSING\tFAILED\tPUBLISHED\tABANDONED\tOLDEST\tLAST ERROR")
	for _, name := range slices.Sorted(maps.Keys(status)) {
		if status[name].Status != "ok" {
			_, _ = fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t-\t-\tdoes not answer (see below)\n", name)
			continue
		}
		for _, broker := range slices.Sorted(maps.Keys(status[name].Brokers)) {
			b := status[name].Brokers[broker]
			label := broker
			if b.Unknown {
				label += " (not configured!)"
			}
			if b.Paused != nil {
				label += " (paused)"
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", name, label, b.Counts[outbox.StatusPending], b.Counts[outbox.StatusProcessing],
				b.Counts[outbox.StatusFailed], b.Counts[outbox.StatusPublished], b.Counts[outbox.StatusAbandoned],
				age(b.OldestPendingSeconds), shortError(b.LastError, time.Now()))
		}
	}
	return table.Flush()
}

func age(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// shortError shows age, class and message of a last_error on one line, the class only where the message does not begin with it. What the
// broker said stands behind the destination's name, so the line is longer than a terminal is wide.
func shortError(text string, now time.Time) string {
	var last outbox.LastError
	if text == "" || json.Unmarshal([]byte(text), &last) != nil {
		return text
	}
	line := last.Message
	if head, _, _ := strings.Cut(line, ":"); !strings.HasSuffix(head, last.Class) {
		line = last.Class + ": " + line
	}
	if !last.At.IsZero() { // by the clock of the relay that met it
		line = max(0, now.Sub(last.At)).Round(time.Second).String() + " ago: " + line
	}
	const width = 200
	if runes := []rune(line); len(runes) > width {
		line = string(runes[:width-1]) + "…"
	}
	return line
}
