package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// thousands groups digits by commas.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// countText shows a number that may have been too large to count.
func countText(c admin.Count) string {
	if c.More {
		return thousands(c.N) + "+"
	}
	return thousands(c.N)
}

// rows says how many, as people do.
func rows(c admin.Count) string {
	if c.N == 1 && !c.More {
		return "1 row"
	}
	return countText(c) + " rows"
}

// age shows how long something takes or took.
func age(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return "<1s"
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d" + hours(d)
	default:
		return d.Round(time.Second).String()
	}
}

// hours beyond the days.
func hours(d time.Duration) string {
	if h := int(d%(24*time.Hour)) / int(time.Hour); h > 0 {
		return strconv.Itoa(h) + "h"
	}
	return ""
}

// since shows how long ago something was; by the clock of another machine, perhaps.
func since(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return age(max(time.Millisecond, now.Sub(at))) + " ago"
}

// moment shows a time as RFC 3339 in UTC, to the second.
func moment(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// errorText shows class and message on one line, the class only where the message does not begin
// with it.
func errorText(last *outbox.LastError) string {
	if last == nil {
		return ""
	}
	if head, _, _ := strings.Cut(last.Message, ":"); last.Class == "" || strings.HasSuffix(head, last.Class) {
		return last.Message
	}
	return last.Class + ": " + last.Message
}

// errorWidth is wider than a terminal: what the broker said stands behind the destination's name.
const errorWidth = 200

// agedError is an error with its age, by the clock of the relay that met it.
func agedError(last *outbox.LastError, now time.Time) string {
	if last == nil {
		return ""
	}
	line := errorText(last)
	if !last.At.IsZero() {
		line = since(last.At, now) + ": " + line
	}
	return shorten(line)
}

// orDash stands for what is not there.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printJSON prints one object, for people, too.
func printJSON(cmd *cobra.Command, value any) error {
	encoder := json.NewEncoder(visibleJSON{cmd.OutOrStdout()})
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// printLine prints one object on a line of its own.
func printLine(cmd *cobra.Command, value any) error {
	encoder := json.NewEncoder(visibleJSON{cmd.OutOrStdout()})
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
