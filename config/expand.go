package config

import (
	"fmt"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME}, ${NAME:-default} and $$ in one value. A $ before anything else stands
// for itself. used is true when a variable, or its default, went into the result. Each flaw is a
// message about the value; none contains a value.
func expand(value string, lookup func(string) (string, bool)) (result string, used bool, flaws []string) {
	if !strings.Contains(value, "$") {
		return value, false, nil
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(value, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), used, flaws
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			value = after[1:]
		case strings.HasPrefix(after, "{"):
			reference, rest, closed := strings.Cut(after[1:], "}")
			if !closed {
				return "", used, append(flaws, `has a "${" without "}": write ${NAME}, or $$ for a plain $`)
			}
			text, flaw := resolve(reference, lookup)
			if flaw != "" {
				flaws = append(flaws, flaw)
			}
			out.WriteString(text)
			used, value = true, rest
		default:
			out.WriteByte('$')
			value = after
		}
	}
}

// resolve looks up what stands between ${ and }.
func resolve(reference string, lookup func(string) (string, bool)) (text, flaw string) {
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	switch {
	case !variableName.MatchString(name):
		return "", "has a ${...} that names no environment variable: write ${NAME} or ${NAME:-default}, or $$ for a plain $"
	case strings.Contains(fallback, "${"):
		return "", fmt.Sprintf("the default of ${%s:-...} contains another ${: defaults do not nest", name)
	}
	text, ok := lookup(name)
	if hasFallback && text == "" {
		return fallback, ""
	}
	if !ok {
		return "", fmt.Sprintf("environment variable %s is not set: set it, or write ${%s:-default}", name, name)
	}
	return text, ""
}
