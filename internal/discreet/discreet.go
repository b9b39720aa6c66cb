// Package discreet takes out of foreign texts what must not get into logs, rows or answers.
package discreet

import "regexp"

// repeated is how Redis and its kin begin to repeat the arguments of a command that they do not
// know, AUTH with its password say.
var repeated = regexp.MustCompile(`(?s),? with args beginning with:.*`)

// Text is what a server said without what it repeats of a command: that may be a password, or a
// payload.
func Text(said string) string { return repeated.ReplaceAllLiteralString(said, "") }
