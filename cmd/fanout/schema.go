package main

import (
	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Long: "Print the JSON Schema (draft 7) of the configuration: with it an editor completes keys, shows what each one means, and\n" +
			"marks what is wrong. Editors with the YAML language server find it by the first line of the configuration:\n\n" +
			"  # yaml-language-server: $schema=fanout.schema.json\n\n" +
			"\"fanout validate\" knows more: what depends on several keys, and what databases and brokers say.",
		Example: "  fanout schema >fanout.schema.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema(config.WithBrokerTypes(clients.Types()...)))
			return err
		},
	}
}
