// Package doccheck keeps the documents true. The tests that docs/faults.md names exist, the source logs the
// lines that it lists, and the links of all pages lead somewhere.
package doccheck
