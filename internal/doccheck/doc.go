// Package doccheck keeps tables of the documents true. Of docs/faults.md: the tests that it names
// exist, and the lines of the log that it lists are those of the source. Of docs/metrics.md: the
// instruments that it lists are those of the source. Of all pages: links lead somewhere.
package doccheck
