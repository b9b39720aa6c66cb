package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/cmd/fanout/internal/demo"
)

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole way with nothing installed",
		Long: "Show the whole way with nothing installed: a shop on SQLite, a Redis-protocol server and Google's Pub/Sub\n" +
			"emulator in this process, and the real adapters between them. A consumer, this program once more, adds up what it\n" +
			"hears in a database of its own. Each broker is gone for a moment, the consumer is killed again and again, and in\n" +
			"the end its numbers are compared with the shop's.\n" +
			"The dashboard is served meanwhile, and on a terminal until Enter is pressed.",
		Args: noArgs,
	}
	orders := cmd.Flags().Int("orders", 1000, "orders to place")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object and nothing else")
	listen := cmd.Flags().String("listen", "127.0.0.1:8088", "`address` of the dashboard on this machine, another port where that one is taken; empty for none")
	noOpen := cmd.Flags().Bool("no-open", false, "leave the browser alone; it is opened only from a terminal")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *orders < 1 {
			return usageError{errors.New("--orders: place at least one")}
		}
		if err := demo.CheckListen(*listen); err != nil {
			return usageError{fmt.Errorf("--listen: %w", err)}
		}
		cfg := demo.Config{Orders: *orders, Live: cmd.OutOrStdout(), Terminal: isTerminal(cmd.OutOrStdout()), Listen: *listen}
		switch {
		case *asJSON:
			cfg.Live = io.Discard
			if !cmd.Flags().Changed("listen") { // nobody would be told where it is
				cfg.Listen = ""
			}
			cfg.Opened = func(url string) { cmd.PrintErrln("dashboard:", url) }
		case cfg.Terminal && isTerminal(cmd.InOrStdin()):
			cfg.Enter = cmd.InOrStdin()
			if !*noOpen {
				cfg.Opened = func(url string) { browse(cmd.Context(), url) }
			}
		}
		result, err := demo.Run(cmd.Context(), cfg)
		if *asJSON && result != nil {
			err = errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(result))
		}
		return err
	}
	return cmd
}
