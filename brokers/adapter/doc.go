// Package adapter has what the adapters of brokers share: the account of one call of Publish with the rule
// about messages of one key, and the gate that Close waits at. An adapter that uses them has to know its
// client, and little else; package brokertest tells whether it is right.
package adapter
