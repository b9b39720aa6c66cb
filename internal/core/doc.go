// Package core decides what happens to rows: which rows of a window a claim takes, which are
// deferred, and what a key block lets through. The functions are pure: they know no clock, no
// database and no chance. Stores read what the decisions need and write what they say; package
// claims brings the two together; package protocol explores every state of small worlds with these
// very functions.
package core
