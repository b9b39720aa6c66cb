package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/contract"
)

func contractCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "contract",
		Short: "Work with the file that says what leaves an application",
		Long: "Work with the file that says what leaves an application: per external broker the format, headers and extensions,\n" +
			"and per published event type the destination, the ordering key and a JSON Schema of the data.\n\n" +
			"Only the application knows its event types, so a test of the application writes the file and keeps it up to date:\n" +
			"fanouttest.Contract(t, events, routing, \"testdata/contract.json\"). These commands read such files.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(contractDiffCommand(), contractAsyncAPICommand())
	return cmd
}

func contractDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say which changes from one contract to another are breaking, and which are compatible",
		Long: "Say which changes from one contract to another are breaking for partners, and which are compatible. One of the two\n" +
			"files can be - for standard input. The exit code is 1 where a change is breaking.",
		Example: "  fanout contract diff old.json new.json\n  git show main:testdata/contract.json | fanout contract diff - testdata/contract.json",
		Args:    files("diff", "OLD", "NEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var documents [2]contract.Document
			for i, name := range args {
				if err := readContract(cmd, name, &documents[i]); err != nil {
					return err
				}
			}
			breaking, compatible, err := documents[0].Changes(&documents[1])
			if err != nil {
				return err
			}
			for _, change := range breaking {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "breaking: %s\n", printable(change))
			}
			for _, change := range compatible {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "compatible: %s\n", printable(change))
			}
			if len(breaking) > 0 {
				return fmt.Errorf("%d breaking, %d compatible: partners have to know before this is deployed", len(breaking), len(compatible))
			}
			return nil
		},
	}
}

func contractAsyncAPICommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "asyncapi FILE",
		Short: "Print a contract as an AsyncAPI 3.0 document",
		Long: "Print a contract as an AsyncAPI 3.0 document, in JSON, of all external brokers or of those that --broker names.\n" +
			"Servers are not in it, since a contract knows none. FILE can be - for standard input.",
		Example: "  fanout contract asyncapi testdata/contract.json --broker partner --contract-version 1.4.0 > partner.asyncapi.json",
		Args:    files("asyncapi", "FILE"),
	}
	brokers := cmd.Flags().StringArray("broker", nil, "external `broker` to describe; can be given several times (default: all)")
	version := cmd.Flags().String("contract-version", "1.0.0", "`version` of the contract, which AsyncAPI requires")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var document contract.Document
		if err := readContract(cmd, args[0], &document); err != nil {
			return err
		}
		text, err := document.AsyncAPI(*version, *brokers...)
		if err != nil {
			return usageError{err}
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}

// files checks that a command has the files that it works on.
func files(command string, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usageError{fmt.Errorf("give %q the files %q: there are %d: see \"fanout contract %s --help\"", command, names, len(args), command)}
		}
		return nil
	}
}

// maxContractBytes is one more than a contract can have, which then says what is wrong.
const maxContractBytes = 8<<20 + 1

// readContract reads a contract from a file, or from standard input.
func readContract(cmd *cobra.Command, name string, into *contract.Document) error {
	source := cmd.InOrStdin()
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // it is the file that the command is given
		if err != nil {
			return usageError{err}
		}
		defer func() { _ = file.Close() }()
		source = file
	}
	text, err := io.ReadAll(io.LimitReader(source, maxContractBytes))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return usageError{fmt.Errorf("%s: %w", name, err)}
	}
	return nil
}
