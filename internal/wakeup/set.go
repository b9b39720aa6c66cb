package wakeup

import "math/bits"

// A Set is a set of shards, numbered as driver.Delivery.Shards says: bit n is shard n. Zero
// stands for unknown shards: a processor woken by it polls the database first, which costs a round
// trip.
type Set uint32

// Unknown makes a processor poll.
const Unknown Set = 0

// setBits is how many shards a Set can hold.
const setBits = 32

// SetOf returns the set of the given shards. One that does not fit makes the whole set
// unknown.
func SetOf(shards ...int) Set {
	var set Set
	for _, shard := range shards {
		if shard < 0 || shard >= setBits {
			return Unknown
		}
		set |= 1 << shard
	}
	return set
}

// Has reports whether a shard is in the set.
func (s Set) Has(shard int) bool { return shard >= 0 && shard < setBits && s>>shard&1 == 1 }

// Within reports whether the set is known and has none but the first n shards.
func (s Set) Within(n int) bool { return s != Unknown && bits.Len32(uint32(s)) <= n }

// union is what is known of two sets together.
func (s Set) union(other Set) Set {
	if s == Unknown || other == Unknown {
		return Unknown
	}
	return s | other
}
