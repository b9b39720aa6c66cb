package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// complete lets the shell complete a flag from the configuration, which needs no variable for that.
func complete(cmd *cobra.Command, flag string, values func(*config.Config) []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return among(fromConfig(cmd, values), prefix), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil { // the flag is not there
		panic(err)
	}
}

// completeFixed lets the shell complete a flag from words that are always the same.
func completeFixed(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is not there
	}
}

// completeBroker completes the one argument of a command.
func completeBroker(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return among(fromConfig(cmd, (*config.Config).BrokerNames), prefix), cobra.ShellCompDirectiveNoFileComp
}

// fromConfig reads words from the configuration; none where the file cannot be read: a shell has no
// place for errors.
func fromConfig(cmd *cobra.Command, values func(*config.Config) []string) []string {
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return nil
	}
	cfg, err := config.Load(path, config.WithUnsetVariables("databases", "consumers", "outbox", "brokers", "cleanup", "monitor"))
	if err != nil {
		return nil
	}
	return values(cfg)
}

func among(words []string, prefix string) []string {
	var fitting []string
	for _, word := range words {
		if strings.HasPrefix(word, prefix) {
			fitting = append(fitting, word)
		}
	}
	return fitting
}

// statusWords are the statuses of rows.
func statusWords(statuses ...outbox.Status) []string {
	words := make([]string, len(statuses))
	for i, status := range statuses {
		words[i] = string(status)
	}
	return words
}
