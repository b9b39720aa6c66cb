//go:build race

package main

// raced says whether the race detector looks on.
const raced = true
