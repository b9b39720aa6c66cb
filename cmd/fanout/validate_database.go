package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// checkDatabase looks at how one database is set up, at its schema, and for rows that no processor
// delivers. Warnings are printed and counted; the error says why a relay cannot work with it. The
// destinations of its rows become known.
func checkDatabase(cmd *cobra.Command, cfg *config.Config, name string, known destinations) (warnings int, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
	defer cancel()
	store, err := fanout.OpenStore(ctx, cfg, name)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	diagnosis, err := store.Diagnose(ctx)
	if err != nil {
		return warnings, fmt.Errorf("database %s: %w", name, err)
	}
	cmd.Printf("database %s: %s\n", name, describe(&diagnosis))
	for _, finding := range diagnosis.Warnings() {
		cmd.PrintErrf("warning: database %s: %s\n", name, printable(finding.Message))
		warnings++
	}
	if err := diagnosis.Err(); err != nil {
		return warnings, fmt.Errorf("database %s: %w", name, err)
	}
	if err := store.Check(ctx); err != nil {
		return warnings, fmt.Errorf("database %s: %w", name, spellOut(err))
	}
	cmd.Printf("database %s: the schema is up to date\n", name)
	warnings += compareTexts(cmd, name, store)
	unknown, err := relay.UnknownBrokers(ctx, store, cfg.BrokerNames())
	for _, broker := range unknown {
		cmd.PrintErrf("warning: database %s: rows wait for broker %q, which is not configured: no processor delivers them\n", name, broker)
		warnings++
	}
	if err == nil {
		var rows []admin.Record
		console := monitor.NewConsole(map[string]admin.Administration{name: store}, monitor.WithBrokers(cfg.BrokerNames()...))
		found := stranded{}
		if rows, found.more, err = console.Stranded(ctx, name); len(rows) > 0 {
			found.rows = rows
			cmd.PrintErrf("warning: database %s: %s\n", name, printable(strandedNote(found)))
			warnings++
		}
	}
	if err == nil {
		err = known.see(ctx, store)
	}
	if err != nil {
		return warnings, fmt.Errorf("database %s: %w", name, err)
	}
	return warnings, nil
}

// scratchTimeout bounds the comparison with a scratch schema, which a server has to make.
const scratchTimeout = 30 * time.Second

// scratcher is a store of the library.
type scratcher interface {
	CompareWithScratch(ctx context.Context) ([]string, error)
}

// compareTexts prints and counts the differences that keep no relay from starting.
func compareTexts(cmd *cobra.Command, name string, store scratcher) (warnings int) {
	ctx, cancel := context.WithTimeout(cmd.Context(), scratchTimeout)
	defer cancel()
	differences, err := store.CompareWithScratch(ctx)
	if err != nil {
		cmd.Printf("database %s: defaults, generated columns, CHECK constraints and predicates of indexes were not compared: %s\n", name, printable(err.Error()))
		return 0
	}
	for _, difference := range differences {
		cmd.PrintErrf("warning: database %s: %s: bring it back to what \"fanout migrate --print\" shows\n", name, printable(difference))
	}
	return len(differences)
}

// describe says in a line what the database is and how it is set up.
func describe(d *admin.Diagnosis) string {
	settings := make([]string, len(d.Settings))
	for i, setting := range d.Settings {
		settings[i] = setting.Name + " " + setting.Value
	}
	return fmt.Sprintf("%s; %s; clock %s (±%s)", d.Server, strings.Join(settings, ", "), offset(d.ClockOffset), d.ClockError.Round(time.Microsecond))
}

// offset shows how far the database's clock is from ours.
func offset(by time.Duration) string {
	if by >= 0 {
		return "+" + by.Round(time.Microsecond).String()
	}
	return by.Round(time.Microsecond).String()
}

// spellOut gives each difference of a schema a line of its own.
func spellOut(err error) error {
	var schema *admin.SchemaError
	if !errors.As(err, &schema) {
		return err
	}
	lines := strings.Join(append([]string{schema.Remedy + ":"}, schema.Differences...), "\n  ")
	return errors.New(strings.Replace(err.Error(), schema.Error(), "the outbox schema is not up to date: "+lines, 1))
}
