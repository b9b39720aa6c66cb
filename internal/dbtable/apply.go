package dbtable

import (
	"fmt"
	"slices"
)

// Apply brings a schema up to date: for each step whose version is not among those done, in order, it
// calls apply, unless the step's version is among those there, which another tool has applied; then it
// calls record. It returns the names of the steps that it applied, such as "0001_inbox", and of those
// that it recorded, with a note behind the name: "0001_inbox is already there, recorded". It stops at
// the first error.
func Apply(steps []Migration, done, there []int, apply, record func(Migration) error) ([]string, error) {
	var names []string
	for _, step := range steps {
		if slices.Contains(done, step.Version) {
			continue
		}
		name := step.String()
		if slices.Contains(there, step.Version) {
			name += " is already there, recorded"
		} else if err := apply(step); err != nil {
			return nil, fmt.Errorf("step %s: %w", step, err)
		}
		if err := record(step); err != nil {
			return nil, fmt.Errorf("record step %s: %w", step, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// A Comparison is how a live schema differs from what some first steps make.
type Comparison struct {
	// Begun is true when there is something that the steps cannot be applied over: a table of one of
	// their names, where they do not pass over it.
	Begun bool
	// Differences, for people.
	Differences []string
}

// There returns the versions of the steps that another tool has applied: of those that are not done,
// as many as the live schema has. compare says how it differs from what the given steps make, which
// are the first ones; it is asked only where a step is missing. Where nothing is recorded, and tables
// are there that are not what any of the steps makes, strange is how they differ from what all steps
// make.
func There(steps []Migration, done []int, compare func(first []Migration) (Comparison, error)) (there []int, strange []string, err error) {
	for n := len(steps); n > 0 && !slices.Contains(done, steps[n-1].Version); n-- {
		found, err := compare(steps[:n])
		if err != nil {
			return nil, nil, err
		}
		if !found.Begun {
			return nil, nil, nil
		}
		if len(found.Differences) == 0 {
			for _, step := range steps[:n] {
				there = append(there, step.Version)
			}
			return there, nil, nil
		}
		if n == len(steps) {
			strange = found.Differences
		}
	}
	if len(done) > 0 {
		return nil, nil, nil // the record says up to where the tables have come
	}
	return nil, strange, nil
}
