package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// style is how a terminal shows a text; empty = as it is.
type style string

// The styles that the tables use.
const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	yellow style = "33"
)

// cell is one field of a table.
type cell struct {
	text  string
	style style
}

func text(s string) cell             { return cell{text: s} }
func styled(s string, as style) cell { return cell{text: s, style: as} }
func textf(f string, a ...any) cell  { return cell{text: fmt.Sprintf(f, a...)} }
func cells(texts ...string) (c []cell) {
	for _, s := range texts {
		c = append(c, text(s))
	}
	return c
}

// table aligns columns by their runes. What it prints has no control characters but its own: keys
// and errors come from outside, and a terminal would obey them.
type table struct {
	colour bool
	rows   [][]cell
}

func newTable(w io.Writer, head ...string) *table {
	t := &table{colour: colourful(w)}
	row := cells(head...)
	for i := range row {
		row[i].style = bold
	}
	t.rows = append(t.rows, row)
	return t
}

func (t *table) add(row ...cell) { t.rows = append(t.rows, row) }

func (t *table) print(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i := range row {
			row[i].text = printable(row[i].text)
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	var out strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(t.paint(c))
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (t *table) paint(c cell) string {
	if !t.colour || c.style == plain || c.text == "" {
		return c.text
	}
	return "\x1b[" + string(c.style) + "m" + c.text + "\x1b[0m"
}

// output shows what a command finds in several databases: a table, or with --json one object per
// line.
type output struct {
	cmd    *cobra.Command
	asJSON bool
	table  *table
	found  int
}

func newOutput(cmd *cobra.Command, asJSON bool, head ...string) *output {
	return &output{cmd: cmd, asJSON: asJSON, table: newTable(cmd.OutOrStdout(), head...)}
}

func (o *output) add(object any, row ...cell) error {
	o.found++
	if o.asJSON {
		return printLine(o.cmd, object)
	}
	o.table.add(row...)
	return nil
}

// end prints the table, or says that there was nothing to put into it.
func (o *output) end(err error, nothing string) error {
	switch {
	case o.asJSON:
	case o.found > 0:
		return errors.Join(err, o.table.print(o.cmd.OutOrStdout()))
	case err == nil && nothing != "":
		o.cmd.PrintErrln(nothing)
	}
	return err
}

// printable writes what a terminal would obey, or not show, as an escape.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}
	var out strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			_, _ = fmt.Fprintf(&out, `\x%02x`, s[i])
		case r == '\n':
			out.WriteString(`\n`)
		case hidden(r):
			_, _ = fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// visibleJSON writes in JSON what a terminal would obey, or not show, as an escape, which means the
// same to whoever reads the JSON. Each write must be of whole characters.
type visibleJSON struct{ io.Writer }

// Write implements io.Writer.
func (v visibleJSON) Write(b []byte) (int, error) {
	hides := func(r rune) bool { return r != '\n' && hidden(r) } // lines end so
	if !bytes.ContainsFunc(b, hides) {
		return v.Writer.Write(b)
	}
	var out bytes.Buffer
	for _, r := range string(b) {
		if !hides(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			_, _ = fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	if _, err := v.Writer.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// hidden are control characters, and those that turn the direction of a line.
func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// shorten cuts the text of an error to its width in tables.
func shorten(s string) string {
	if runes := []rune(s); len(runes) > errorWidth {
		return string(runes[:errorWidth-1]) + "…"
	}
	return s
}
