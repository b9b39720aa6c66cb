package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error reports everything that is wrong with a configuration. Find it with errors.As.
type Error struct {
	// Problems in the order of their lines; at least one.
	Problems []Problem
}

// Error implements error: one line per problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// Problem is one thing that is wrong, or, among the warnings, worth a second look.
type Problem struct {
	// File is the name that was given to Load or Parse.
	File string
	// Line and Column count from 1; they are 0 in a configuration that was made in Go. They point at the value, or at the key where the key is the
	// problem or something is missing below it.
	Line, Column int
	// Path of the setting, such as "outbox.external_brokers[1]"; empty for the document as a whole.
	Path string
	// Message says what is wrong and what to do. It never contains a secret.
	Message string
}

// String is the problem on one line: "fanout.yaml:12:3: outbox.lease: ...".
func (p Problem) String() string {
	where := ""
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Path != "" {
		where += p.Path + ": "
	}
	return where + p.Message
}

func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
