// Package nearest finds the name that was probably meant by one that is unknown.
package nearest

import "strings"

// most is how long a name may be that is compared, and how many edits away another one may be.
const (
	maxLength   = 64
	maxDistance = 2
)

// Of returns the known name at the smallest edit distance, "" if none is near. Case and underscores
// count for nothing, so that maxAttempts finds max_attempts.
func Of(name string, known []string) string {
	plain := func(s string) []rune { return []rune(strings.ReplaceAll(strings.ToLower(s), "_", "")) }
	best, bestDistance := "", maxDistance+1
	wanted := plain(name)
	if len(wanted) > maxLength {
		return ""
	}
	for _, candidate := range known {
		if len(candidate) > 4*maxLength {
			continue
		}
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
