//go:build unix

package chaos

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// sound is the evidence of a run in which all went well: two transactions with three events of one
// account, the second of them internal, and one that was rolled back.
func sound() *evidence {
	e := &evidence{
		facts: map[event]fact{
			{"a", 0}: {"account-1", 1, true}, {"a", 1}: {"account-1", 2, false}, {"b", 0}: {"account-1", 3, true},
		},
		outcomes: map[string]outcome{"a": {scenario.Committed, false}, "b": {scenario.Unknown, true}, "c": {scenario.RolledBack, false}},
		held:     map[string][]delivery{}, seen: map[string]map[string]struct{}{}, summed: map[string]map[string]sums{},
		brokers: brokers, behind: map[string]int64{},
	}
	for _, b := range brokers {
		broker := b.name
		e.seen[broker] = map[string]struct{}{}
		e.consumers, e.summed[broker] = append(e.consumers, ConsumerVerdict{Broker: broker}), e.due(b)
		for _, at := range []event{{"a", 0}, {"a", 1}, {"b", 0}} {
			is := e.facts[at]
			if !is.published && broker != scenario.Internal {
				continue
			}
			message := at.tx + string(rune('0'+at.n))
			e.rows = append(e.rows, row{event: at, message: message, broker: broker, status: "published", attempts: 1})
			e.held[broker] = append(e.held[broker], delivery{event: at, account: is.account, seq: is.seq, message: message, at: time.Unix(100+is.seq, 0)})
			e.seen[broker][message] = struct{}{}
		}
	}
	return e
}

func TestSoundEvidence(t *testing.T) {
	t.Parallel()
	e := sound()
	verdicts, violations := e.judge()
	assert.Empty(t, violations)
	assert.Equal(t, ConsumerVerdict{Broker: scenario.Internal, Expected: 3, Handled: 3, Sums: 1, Right: 1}, e.consumers[0])
	assert.Equal(t, ConsumerVerdict{Broker: scenario.Partner, Expected: 2, Handled: 2, Sums: 1, Right: 1}, e.consumers[1])
	require.Len(t, verdicts, 6)
	assert.Equal(t, BrokerVerdict{Broker: scenario.Internal, Expected: 3, Held: 3, MaxAttempts: 1, Causes: map[string]int{}}, verdicts[0])
	assert.Equal(t, BrokerVerdict{Broker: scenario.Partner, Expected: 2, Held: 2, MaxAttempts: 1, Causes: map[string]int{}}, verdicts[1])
}

// What a message has spent is what it had beyond the attempt that published it.
func TestSpent(t *testing.T) {
	t.Parallel()
	e := sound()
	for i := range e.rows {
		if e.rows[i].broker == scenario.Kafka {
			e.rows[i].attempts = 3
		}
	}
	verdicts, violations := e.judge()
	assert.Empty(t, violations)
	for _, v := range verdicts {
		want := 0
		if v.Broker == scenario.Kafka {
			want = 2 + 2 // of each of its messages
		}
		assert.Equal(t, want, v.Spent, v.Broker)
	}
}

// Each rule is found, by itself or with what follows from it.
func TestCrimes(t *testing.T) {
	t.Parallel()
	rowOf := func(e *evidence, broker, message string) *row {
		return &e.rows[slices.IndexFunc(e.rows, func(r row) bool { return r.broker == broker && r.message == message })]
	}
	for name, tt := range map[string]struct {
		tamper func(e *evidence)
		want   []Rule
	}{
		"lost": {func(e *evidence) {
			e.held[scenario.Partner] = e.held[scenario.Partner][:1]
			delete(e.seen[scenario.Partner], "b0")
		}, []Rule{Lost, Unconfirmed}},
		"lost by the broker": {func(e *evidence) { e.held[scenario.Partner] = e.held[scenario.Partner][:1] }, []Rule{Lost, Unconfirmed, Vanished}},
		"not captured": {func(e *evidence) {
			e.facts[event{"b", 1}] = fact{"account-2", 1, false}
			e.summed[scenario.Internal] = e.due(brokers[0])
		}, []Rule{Lost, NoRow}},
		"stuck":     {func(e *evidence) { rowOf(e, scenario.PubSub, "a0").status = "failed" }, []Rule{Stuck}},
		"abandoned": {func(e *evidence) { rowOf(e, scenario.PubSub, "a0").status = "abandoned" }, []Rule{Abandoned}},
		"attempts":  {func(e *evidence) { rowOf(e, scenario.PubSub, "a0").attempts = maxAttempts + 1 }, []Rule{Attempts}},
		"rolled back and published": {func(e *evidence) {
			e.held[scenario.Internal] = append(e.held[scenario.Internal], delivery{event: event{"c", 0}, account: "account-9", seq: 1, message: "c0"})
			e.seen[scenario.Internal]["c0"] = struct{}{}
		}, []Rule{Phantom}},
		"internal, at a partner": {func(e *evidence) {
			e.held[scenario.Partner] = append(e.held[scenario.Partner], delivery{event: event{"a", 1}, account: "account-2", seq: 2, message: "a1"})
			e.seen[scenario.Partner]["a1"] = struct{}{}
		}, []Rule{Phantom}},
		"out of order": {func(e *evidence) { slices.Reverse(e.held[scenario.PubSub]) }, []Rule{OutOfOrder}},
		"two message ids": {func(e *evidence) {
			second := e.held[scenario.Internal][2]
			second.message, second.account = "other", ""
			e.held[scenario.Internal] = append(e.held[scenario.Internal], second)
			e.seen[scenario.Internal]["other"] = struct{}{}
		}, []Rule{TwoRows}},
		"not kept": {func(e *evidence) { e.notKept, e.rows = true, nil }, nil},
		"kept":     {func(e *evidence) { e.notKept = true }, []Rule{Kept}},
		"not kept, and not there either": {func(e *evidence) {
			lost := e.held[scenario.Internal][0].message
			e.notKept, e.rows, e.held[scenario.Internal] = true, nil, e.held[scenario.Internal][1:]
			delete(e.seen[scenario.Internal], lost)
		}, []Rule{Lost, NoRow}},
		"two rows":          {func(e *evidence) { e.rows = append(e.rows, e.rows[0]) }, []Rule{TwoRows}},
		"leak":              {func(e *evidence) { e.held[scenario.Partner][0].leaks = []string{"checksum"} }, []Rule{Leak}},
		"unseen":            {func(e *evidence) { delete(e.seen[scenario.PubSub], "a0") }, []Rule{Unseen}},
		"lost commit":       {func(e *evidence) { e.outcomes["d"] = outcome{scenario.Committed, false} }, []Rule{LostCommit}},
		"ghost commit":      {func(e *evidence) { e.outcomes["a"] = outcome{scenario.RolledBack, false} }, []Rule{GhostCommit}},
		"completed in vain": {func(e *evidence) { e.outcomes["d"] = outcome{scenario.Unknown, true} }, []Rule{LostCommit}},
		"duplicate, which is allowed": {func(e *evidence) {
			e.held[scenario.Internal] = append(e.held[scenario.Internal], e.held[scenario.Internal][0])
		}, nil},
		"counted twice":                          {func(e *evidence) { e.summed[scenario.PubSub]["account-1"] = sums{3, 5} }, []Rule{Projection}},
		"not counted":                            {func(e *evidence) { delete(e.summed[scenario.Partner], "account-1") }, []Rule{Projection}},
		"another's sum":                          {func(e *evidence) { e.summed[scenario.Partner]["account-9"] = sums{1, 1} }, []Rule{Projection}},
		"wrong contents":                         {func(e *evidence) { e.summed[scenario.Internal]["account-1"] = sums{3, 7} }, []Rule{Projection}},
		"dead letters":                           {func(e *evidence) { e.consumers[2].DeadLetters = 1 }, []Rule{DeadLetters}},
		"handled out of order":                   {func(e *evidence) { e.behind[scenario.RabbitMQ] = 1 }, []Rule{Disorder}},
		"handled out of order, which is allowed": {func(e *evidence) { e.behind[scenario.Internal] = 1 }, nil},
		"fence":                                  {func(e *evidence) { e.watch = []string{"held by another"} }, []Rule{Fence}},
		"sessions":                               {func(e *evidence) { e.sessions = 1 }, []Rule{Sessions}},
		"goroutines":                             {func(e *evidence) { e.leaked = []string{"relay-0"} }, []Rule{Goroutines}},
		"crash":                                  {func(e *evidence) { e.crashed = []string{"relay-0"} }, []Rule{Crash}},
		"wrong clock":                            {func(e *evidence) { e.clocks = []string{"relay-0"} }, []Rule{Clock}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := sound()
			tt.tamper(e)
			_, violations := e.judge()
			found := map[Rule]bool{}
			for _, v := range violations {
				found[v.Rule] = true
				assert.NotEmpty(t, v.Cases)
			}
			assert.ElementsMatch(t, tt.want, slices.Collect(maps.Keys(found)), violations)
		})
	}
}

// A duplicate has the cause that could have made it: a fault of a relay or a server around its
// first copy, or a relay that goes on at its second one; of several, that of a process before that
// of a network.
func TestCauses(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	fault := func(kind Kind, target string, from, to int) performed {
		return performed{Fault: Fault{Kind: kind, Target: target}, Began: at(from), Ended: at(to)}
	}
	e := &evidence{faults: []performed{
		fault(Reset, "relay-0/redis", 100, 104), fault(Kill, "relay-1", 101, 103),
		fault(Kill, "producer-0", 200, 201), fault(Delay, "observer-redis/redis", 200, 201),
		fault(RedisKill, "redis", 300, 302), fault(Throttle, "relay-0/redis", 300, 302),
		fault(Stop, "relay-2", 400, 410),
	}}
	for _, tt := range []struct {
		first, again int
		want         string
	}{
		{101, 105, "kill"},
		{104, 106, "cut"}, // after the kill
		{97, 103, noCause},
		{200, 202, noCause}, // producers and consumers make no duplicates
		{301, 303, "server"},
		{400, 404, "stop"},
		{405, 406, noCause}, // while it is stopped, others work
		{405, 411, "stop"},  // it goes on, and sends what it had claimed
	} {
		assert.Equal(t, tt.want, e.cause(at(tt.first), at(tt.again)), tt)
	}
}
