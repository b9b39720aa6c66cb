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
		return among(values(completionConfig(cmd)), prefix), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil { // the flag is not there
		panic(err)
	}
}

// completeFixed lets the shell complete a flag from words that are always the same.
func completeFixed(cmd *cobra.Command, flag string, words ...string) {
	complete(cmd, flag, func(*config.Config) []string { return words })
}

// completeBroker completes the one argument of a command.
func completeBroker(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return among(completionConfig(cmd).BrokerNames(), prefix), cobra.ShellCompDirectiveNoFileComp
}

// completionConfig is empty where the file cannot be read: a shell has no place for errors.
func completionConfig(cmd *cobra.Command) *config.Config {
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return &config.Config{}
	}
	cfg, err := config.Load(path, config.WithAnyBrokerType(), config.WithUnsetVariables("databases", "outbox", "brokers", "cleanup", "monitor"))
	if err != nil {
		return &config.Config{}
	}
	return cfg
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
