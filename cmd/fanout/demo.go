package main

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/cmd/fanout/internal/demo"
)

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole way with nothing installed",
		Long: "Show the whole way with nothing installed: a shop on SQLite, a Redis-protocol server and Google's Pub/Sub\n" +
			"emulator in this process, and the real adapters between them. For a moment the partner's server is gone.",
		Args: noArgs,
	}
	orders := cmd.Flags().Int("orders", 1000, "orders to place")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object and nothing else")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *orders < 1 {
			return usageError{errors.New("--orders: place at least one")}
		}
		cfg := demo.Config{Orders: *orders, Live: cmd.OutOrStdout(), Terminal: isTerminal(cmd.OutOrStdout())}
		if *asJSON {
			cfg.Live = io.Discard
		}
		result, err := demo.Run(cmd.Context(), cfg)
		if *asJSON && result != nil {
			err = errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(result))
		}
		return err
	}
	return cmd
}
