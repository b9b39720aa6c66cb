// Package doccheck keeps the tables of docs/faults.md true: the tests that it names exist, and the lines of the log that it lists are
// those of the source.
package doccheck
