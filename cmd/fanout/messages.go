package main

import (
	"github.com/spf13/cobra"
)

func messagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "messages",
		Short: "List messages, see why they failed, send them again or abandon them",
		Long: "List messages, see why they failed, send them again or abandon them. Lists and counts are bounded, so that they\n" +
			"burden no database, however large its table is. The audit (\"fanout audit\") records what changes rows.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listCommand(), showCommand(), failuresCommand(), blockedCommand(),
		requeueCommand(), abandonCommand(), replayCommand(), unblockCommand(), acknowledgeCommand(), discardCommand())
	return cmd
}

// jsonFlag adds --json. Where there can be many answers, each is an object on a line of its own.
func jsonFlag(cmd *cobra.Command, what string) *bool {
	return cmd.Flags().Bool("json", false, what)
}

const jsonLines = "print one JSON object per line"
