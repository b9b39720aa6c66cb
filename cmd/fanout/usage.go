package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The groups of commands in "fanout --help", in the order of their use.
const (
	groupSetUp = "set-up"
	groupRun   = "run"
	groupLook  = "look"
	groupAct   = "act"
	groupOther = "other"
)

// grouped adds commands to a group of the root's help.
func grouped(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
	}
	root.AddCommand(commands...)
}

// noArgs refuses words that no command wants.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	what := "argument"
	if cmd.HasAvailableSubCommands() {
		what = "command"
	}
	return usageError{fmt.Errorf("unknown %s %q for %q: %s\"%s --help\"", what, args[0], cmd.CommandPath(), meant("", args[0], cmd), cmd.CommandPath())}
}

// unknownFlag adds to the error of a flag which one was probably meant.
func unknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usageError{err}
	}
	suggestion := "see "
	if name := unknown.GetSpecifiedName(); len(name) > 1 { // a letter is near every other one
		flags := new(cobra.Command)
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden {
				flags.AddCommand(&cobra.Command{Use: flag.Name, Run: func(*cobra.Command, []string) {}})
			}
		})
		suggestion = meant("--", name, flags)
	}
	return usageError{fmt.Errorf("%w: %s\"%s --help\"", err, suggestion, cmd.CommandPath())}
}

// meant asks for the names below a command that are near one that is unknown, and ends where the
// name of a help follows.
func meant(prefix, name string, among *cobra.Command) string {
	const farthest = 2 // edits away, as cobra has it
	among.SuggestionsMinimumDistance = farthest
	var near []string
	for _, candidate := range among.SuggestionsFor(name) {
		near = append(near, fmt.Sprintf("%q", prefix+candidate))
	}
	if len(near) == 0 {
		return "see "
	}
	slices.Sort(near)
	return "did you mean " + strings.Join(near, " or ") + "? See "
}
