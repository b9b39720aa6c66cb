// Package integration tests Fanout as its users run it: the command as a process of its own,
// applications with the relay inside, real PostgreSQL and Redis. "make test" finds or starts the
// servers.
package integration
