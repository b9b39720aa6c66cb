package explore

// A mutation breaks the protocol in one place. Exploring a broken protocol must find a violation;
// this is how the tests know that the invariants see anything at all.
type mutation uint8

const (
	sound mutation = iota
	noFence
	byTime
	ignoresHeld
	overwrites
	requeueIgnoresBlocks
	advancesEarly
	purgesBlindly
	takesBlindly
	sendsFollowers
	chargesAll
	spendsOnOutage
	sendsLate
	neverGivesUp
	takesStale
	renewsUnseen
	changesStale
	blocksBlindly
	defersLeased
	replacesBlock
	guessesPublished
	forgetsDelivered
	blocksEveryClass
	removesUnfenced

	// Mistakes about the facts of a row.
	countsDeferred
	leasesNeverEnd
	overlooksClaims
	passesDeferred
	blocksOfAnyClass
	blocksWhenDone
)

func (p *Protocol) is(m mutation) bool { return p.broken == m }
