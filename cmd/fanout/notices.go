package main

import (
	_ "embed"
	"fmt"

	"github.com/spf13/cobra"
)

// notices are the licenses of what the command links; make tidy writes them.
//
//go:embed notices.txt
var notices string

func noticesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "notices",
		Short: "Print the licenses of the software that this command is made of",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), notices)
			return err
		},
	}
}
