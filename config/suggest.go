package config

import (
	"fmt"
	"strings"
)

// suggest is the end of a message about an unknown name: the known name that was probably meant, or
// else all of them.
func suggest(name string, known []string) string {
	if near := nearest(name, known); near != "" {
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

// nearest returns the known name at the smallest edit distance, "" if none is near. Case and
// underscores count for nothing, so that maxAttempts finds max_attempts.
func nearest(name string, known []string) string {
	plain := func(s string) []rune { return []rune(strings.ReplaceAll(strings.ToLower(s), "_", "")) }
	best, bestDistance := "", 3
	wanted := plain(name)
	if len(wanted) > 64 {
		return ""
	}
	for _, candidate := range known {
		letters := plain(candidate)
		distance := editDistance(wanted, letters)
		if distance < bestDistance && 3*distance <= max(len(wanted), len(letters)) {
			best, bestDistance = candidate, distance
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours (optimal string
// alignment distance; Navarro, "A guided tour to approximate string matching", 2001).
func editDistance(a, b []rune) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
