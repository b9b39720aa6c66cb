package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// isTerminal reports whether a stream is a terminal that can redraw lines.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd()) && os.Getenv("TERM") != "dumb"
}

// colourful reports whether to use colours: on a terminal, unless its owner declines
// (https://no-color.org).
func colourful(w io.Writer) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }

// confirmFrom is how many rows may be changed without a question.
const confirmFrom = 100

// confirm asks whether to go on, and refuses where there is no terminal.
func confirm(cmd *cobra.Command, question string) error {
	if !isTerminal(cmd.InOrStdin()) || !isTerminal(cmd.ErrOrStderr()) {
		return usageError{fmt.Errorf("%s? There is no terminal to ask on: repeat the command with --yes, or count first with --dry-run", question)}
	}
	cmd.PrintErrf("%s? [y/N] ", printable(question))
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}
