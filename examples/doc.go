// Package examples holds whole programs, in the folders below it, and examples of consumers that
// run with nothing installed: a Redis in memory stands for a server. They are a module of their
// own, so that no service has that Redis in its module graph.
package examples
