package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration, the databases with their schema, and the brokers",
		Long: "Check the configuration, the databases with their schema, and the brokers. All problems are reported, not just\n" +
			"the first; a relay would not start with any of them. How a database is set up, expressions in the schema that were\n" +
			"changed, rows without a processor and a broker that cannot be reached can be warnings: a relay starts in spite of\n" +
			"them. With --strict each of these is a failure, with exit code 1. With --offline only the configuration is read.\n\n" +
			"Brokers that can tell are asked whether they take messages for the destinations that are known: those of the newest\n" +
			"rows, those that the configuration names without a placeholder, and those of --destination.",
		Example: "  fanout validate --strict\n  fanout validate --strict --destination default=ordering::order --destination partner=acme.orders",
		Args:    noArgs,
	}
	path := configFlag(cmd)
	strict := cmd.Flags().Bool("strict", false, "exit with 1 where there is a warning, also about a broker that cannot be reached")
	destinations := cmd.Flags().StringArray("destination", nil, "`BROKER=NAME` of a stream or topic to ask for, too; can be given several times")
	offline := cmd.Flags().Bool("offline", false, "do not connect to the databases and brokers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadWith(cmd, *path) // with all variables, as a relay needs them
		if err != nil {
			return err
		}
		cmd.Printf("%s: the configuration is valid\n", *path)
		sayWhatLeaves(cmd, cfg)
		asked, err := newDestinations(cfg, *destinations)
		if err != nil {
			return err
		}
		warnings := len(cfg.Warnings)
		var problems []error
		if *offline {
			return errors.Join(strictly(*strict, warnings))
		}
		tenants, err := addTenants(cmd, cfg)
		if problems = append(problems, err); cfg.Tenants.File != "" {
			cmd.Printf("tenants: %d found\n", len(tenants))
		}
		for _, name := range slices.Sorted(maps.Keys(cfg.Databases)) {
			if tenants[name] {
				if err := present(cfg, name); err != nil {
					problems = append(problems, fmt.Errorf("database %s: %w", name, err))
					continue
				}
			}
			warned, err := checkDatabase(cmd, cfg, name, asked)
			warnings, problems = warnings+warned, append(problems, err)
		}
		for _, name := range cfg.BrokerNames() {
			warned, err := checkBroker(cmd, cfg, name, asked[name])
			warnings, problems = warnings+warned, append(problems, err)
		}
		return errors.Join(append(problems, strictly(*strict, warnings))...)
	}
	return cmd
}

// sayWhatLeaves names what each external broker gets, as far as the configuration decides: which
// event types there are, and what is in their data, is in the application's contract.
func sayWhatLeaves(cmd *cobra.Command, cfg *config.Config) {
	for _, route := range cfg.Routing().External {
		extensions := "no extensions"
		if len(route.Extensions) > 0 {
			extensions = "the extensions " + strings.Join(route.Extensions, ", ")
		}
		if names := route.Include.Names(); len(names) > 0 {
			extensions += ", and with " + strings.Join(names, ", ")
		}
		cmd.Printf("external broker %s: published events leave as %s, with %s\n", route.Broker, route.Format, extensions)
		types := "all published types"
		if len(route.Types) > 0 {
			types = "the published types that match " + strings.Join(route.Types, ", ")
		}
		cmd.Printf("external broker %s: %s go to %s\n", route.Broker, types, cmp.Or(route.Destination, "{stream}"))
		encoding := ""
		if route.JSON {
			encoding = "json"
		}
		for _, set := range []struct{ key, value string }{
			{"encoding", encoding},
			{"source", route.Source},
			{"content_type", route.ContentType},
			{"attributes", strings.Join(slices.Sorted(maps.Keys(route.Attributes)), ", ")}, // values can be of the environment
			{"signed by", strings.Join(slices.Sorted(maps.Keys(cfg.Brokers[route.Broker].Sign)), ", ")},
		} {
			if set.value != "" {
				cmd.Printf("external broker %s: %s %s\n", route.Broker, set.key, set.value)
			}
		}
	}
}

// strictly makes an error of warnings that were printed.
func strictly(strict bool, warnings int) error {
	switch {
	case !strict || warnings == 0:
		return nil
	case warnings == 1:
		return errors.New("there is a warning, and --strict was given: see above")
	default:
		return fmt.Errorf("there are %d warnings, and --strict was given: see above", warnings)
	}
}

// checkBroker makes the broker's client and asks whether the broker is there. One of a type
// that another program links cannot be asked. Warnings are printed and counted.
func checkBroker(cmd *cobra.Command, cfg *config.Config, name string, destinations map[string]bool) (warnings int, err error) {
	if cfg.Brokers[name].Settings == nil { // a warning of the configuration says so
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
	defer cancel()
	broker, err := fanout.OpenBroker(ctx, cfg, name, clients.Options()...)
	if err != nil {
		return 0, err
	}
	defer func() { _ = broker.Close(ctx) }()
	if err := broker.Ping(ctx); err != nil {
		cmd.PrintErrf("warning: broker %s cannot be reached: %s\n", name, printable(err.Error()))
		return 1, nil
	}
	cmd.Printf("broker %s: reached\n", name)
	if can := broker.Capabilities(); !can.Takes(cfg.Outbox.MaxPayloadBytes) {
		cmd.PrintErrf("warning: broker %s takes payloads of at most %d bytes, and outbox.max_payload_bytes is %d: what lies between is committed and then abandoned\n",
			name, can.MaxMessageBytes, cfg.Outbox.MaxPayloadBytes)
		warnings++
	}
	return warnings + checkDestinations(cmd, name, broker, destinations), nil
}

// destinations are the names of streams and topics that are known, by broker.
type destinations map[string]map[string]bool

// newDestinations has those of the flags, as BROKER=NAME, and those of the configuration that
// depend on no event.
func newDestinations(cfg *config.Config, flags []string) (destinations, error) {
	known := destinations{}
	for _, name := range cfg.BrokerNames() {
		known[name] = map[string]bool{}
		if fixed := cfg.Brokers[name].Destination; fixed != "" && !strings.Contains(fixed, "{") {
			known[name][fixed] = true
		}
	}
	for _, flag := range flags {
		broker, name, _ := strings.Cut(flag, "=")
		if known[broker] == nil || name == "" {
			return nil, usageError{fmt.Errorf("--destination %q: write BROKER=NAME, where the brokers are %q", flag, cfg.BrokerNames())}
		}
		known[broker][name] = true
	}
	return known, nil
}

// rowsForDestinations is how many rows of a broker and a status are looked at for their
// destinations.
const rowsForDestinations = 200

// see adds the destinations of the newest rows.
func (d destinations) see(ctx context.Context, store admin.Administration) error {
	for broker := range d {
		for _, status := range outbox.Statuses() {
			list, err := store.List(ctx, admin.ListRequest{Broker: broker, Status: status, Limit: rowsForDestinations, Scan: rowsForDestinations})
			if err != nil {
				return err
			}
			for i := range list.Records {
				d[broker][list.Records[i].Stream] = true
			}
		}
	}
	return nil
}

// checkDestinations asks a broker that can tell for each of its destinations. Those of which it
// takes no messages are warnings.
func checkDestinations(cmd *cobra.Command, name string, broker brokers.Broker, destinations map[string]bool) (warnings int) {
	checker, tells := broker.(brokers.DestinationChecker)
	if !tells || len(destinations) == 0 {
		return 0
	}
	for _, destination := range slices.Sorted(maps.Keys(destinations)) {
		ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
		err := checker.CheckDestination(ctx, destination)
		cancel()
		if err != nil {
			cmd.PrintErrf("warning: broker %s: destination %q is unavailable, its messages would wait: %s\n", name, destination, printable(err.Error()))
			warnings++
		}
	}
	cmd.Printf("broker %s: %d of %d known destinations: nothing in the way\n", name, len(destinations)-warnings, len(destinations))
	return warnings
}
