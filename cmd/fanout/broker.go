package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

func brokerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Pause and resume the delivery to a broker",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(pauseCommand(), resumeCommand())
	return cmd
}

func pauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Deliver nothing to a broker until it is resumed, in all processes",
		Long: "Deliver nothing to a broker until it is resumed. The database keeps the pause, so that all relays honour it, also those that start later:\n" +
			"each at its next look for rows, within outbox.poll.max. Rows go on being written, and none loses an attempt; a ttl goes on.",
		Args: oneBroker,
	}
	path, databases := configFlag(cmd), databaseFlag(cmd)
	reason := cmd.Flags().String("reason", "", "why, for those who read the status")
	by := cmd.Flags().String("by", currentUser(), "who pauses it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pause := outbox.Pause{Broker: args[0], By: *by, Reason: *reason}
		return eachStore(cmd, *path, *databases, pause.Broker, func(ctx context.Context, cfg *config.Config, store outbox.FullStore) (string, error) {
			if err := checkUsed(cfg, pause.Broker); err != nil {
				return "", err
			}
			changed, err := store.Pause(ctx, pause)
			if !changed {
				return "was paused already", err
			}
			return "is paused", err
		})
	}
	return cmd
}

func resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Let the delivery to a broker go on",
		Args:  oneBroker,
	}
	path, databases := configFlag(cmd), databaseFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return eachStore(cmd, *path, *databases, args[0], func(ctx context.Context, cfg *config.Config, store outbox.FullStore) (string, error) {
			changed, err := store.Resume(ctx, args[0])
			switch {
			case err != nil:
				return "", err
			case changed: // be it one that the configuration has no more
				return "goes on", nil
			default:
				return "was not paused", checkUsed(cfg, args[0])
			}
		})
	}
	return cmd
}

func databaseFlag(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringSlice("database", nil, "only in these databases of the configuration (default: in all)")
}

func oneBroker(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError{fmt.Errorf("%q takes the name of one broker: see \"%s --help\"", cmd.CommandPath(), cmd.CommandPath())}
	}
	return nil
}

// currentUser names whoever runs the command, as far as the system knows.
func currentUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// eachStore does something about a broker in each database, and says what came out. A database that fails does not keep it from
// the others.
func eachStore(cmd *cobra.Command, path string, databases []string, broker string, do func(context.Context, *config.Config, outbox.FullStore) (string, error)) error {
	cfg, err := load(cmd, path)
	if err != nil {
		return err
	}
	if err := checkDatabases(cfg, databases); err != nil {
		return err
	}
	if len(databases) == 0 {
		databases = slices.Sorted(maps.Keys(cfg.Databases))
	}
	var problems []error
	for _, name := range databases {
		said, err := inStore(cmd.Context(), cfg, name, do)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: broker %s %s\n", name, broker, said)
	}
	return errors.Join(problems...)
}

// checkUsed refuses a broker that the configuration does not have: a typing error must not look like a success.
func checkUsed(cfg *config.Config, broker string) error {
	if !slices.Contains(cfg.BrokerNames(), broker) {
		return usageError{fmt.Errorf("the configuration uses no broker %q: it has %q", broker, cfg.BrokerNames())}
	}
	return nil
}

func checkDatabases(cfg *config.Config, databases []string) error {
	if len(cfg.Databases) == 0 {
		return usageError{errors.New("the configuration has no database")}
	}
	for _, name := range databases {
		if _, ok := cfg.Databases[name]; !ok {
			return usageError{fmt.Errorf("the configuration has no database %q: it has %q", name, slices.Sorted(maps.Keys(cfg.Databases)))}
		}
	}
	return nil
}

func inStore(ctx context.Context, cfg *config.Config, name string, do func(context.Context, *config.Config, outbox.FullStore) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	store, err := fanout.OpenStore(ctx, cfg, name)
	if err != nil {
		return "", err
	}
	defer store.Close()
	said, err := do(ctx, cfg, store)
	if err != nil {
		return "", fmt.Errorf("database %q: %w", name, err)
	}
	return said, nil
}
