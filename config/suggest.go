package config

import (
	"fmt"
	"strings"

	"github.com/gorm-fanout/fanout/internal/nearest"
)

// suggest is the end of a message about an unknown name: the known name that was probably meant, or
// else all of them.
func suggest(name string, known []string) string {
	if near := nearest.Of(name, known); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	if len(known) == 0 {
		return ""
	}
	return ": use " + either(known)
}

// either lists alternatives: "a, b or c".
func either(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
