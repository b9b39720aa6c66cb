// Package config reads a configuration file in YAML and turns it into checked values: the routing
// for the GORM plugin, one delivery policy per broker, the databases, and the schedule of the
// cleanup. It links no database driver and no broker client, so a service that only writes events
// can share the file with its relays.
//
// Reading is strict. Unknown keys, wrong types, undeclared names and values that cannot
// work together are all reported at once, each with its line; see [Error]. A key that is accepted
// has an effect. [Reference] is a complete example with every key and its default; Schema describes all of it to editors.
//
// # Environment
//
// ${NAME} in a value stands for an environment variable, ${NAME:-default} supplies a text where the
// variable is unset or empty, and $$ is a single $. A variable that is unset and has no default is
// an error. Variables are expanded in the values of the parsed document, never in its raw text and
// never in keys: whatever a variable contains, it cannot add YAML of its own.
//
// # Durations
//
// Durations take a unit, as in Go (300ms, 30s, 5m, 24h), and d for days of 24 hours: 30d. See
// [ParseDuration].
//
// # Secrets
//
// Connection strings are of type [Secret], which no formatting, logging or marshalling reveals. No
// error or warning shows one, nor what a variable contains: messages quote the file.
package config
