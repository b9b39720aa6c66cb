// Package deduptest tests implementations of the contracts of package dedup: [RunEntities],
// [RunStore] and [RunTokens] are what every one of them must pass. [Entities], [Store] and [Tokens]
// are implementations in memory, for tests and examples.
package deduptest
