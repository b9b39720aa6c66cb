package explore

import (
	"fmt"
	"slices"
	"strings"
)

// An exploration visits every state of a world, those in reach of the fewest actions first.
type exploration struct {
	*world

	only    string // the name of the invariant that is tested; empty = all
	steps   int
	depth   int
	known   map[fingerprint]int32
	origins []origin
	drain   drain
	tables  map[fingerprint]bool // of which the states were looked at
}

// An origin is how a state was reached first.
type origin struct {
	from   int32
	option int16
}

// A finding is a violation and the shortest way to it.
type finding struct {
	Violation

	trace []ScenarioStep
}

func (f *finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", f.Violation)
	for i, line := range f.trace {
		fmt.Fprintf(&b, "  %2d. %s\n", i+1, line.Text)
	}
	return b.String()
}

// explore returns the first violation, or nil when there is none in the whole world.
func (x *exploration) explore() *finding {
	x.known, x.tables = map[fingerprint]int32{}, map[fingerprint]bool{}
	x.drain = drain{world: x.world, good: map[fingerprint]bool{}}
	start := node{State: NewState(x.workers)}
	x.known[start.fingerprint()] = 0
	x.origins = []origin{{from: -1}}
	for frontier := []frontierState{{start, 0}}; len(frontier) > 0; x.depth++ {
		var next []frontierState
		for i := range frontier {
			found, more := x.expand(&frontier[i])
			if found != nil {
				return found
			}
			next = append(next, more...)
		}
		frontier = next
	}
	return nil
}

type frontierState struct {
	node

	index int32
}

// expand does everything that can happen in a state.
func (x *exploration) expand(from *frontierState) (found *finding, next []frontierState) {
	for i, option := range x.options(&from.node) {
		to, reply, err := x.take(&from.node, &option)
		if err != nil {
			panic(fmt.Sprintf("%v: %s\n%s", err, Describe(&option.Action, &reply), from.String()))
		}
		x.steps++
		for _, violation := range x.protocol.Check(&from.State, &option.Action, &reply, &to.State) {
			if x.only == "" || x.only == violation.Name {
				trace := append(x.trace(from.index), scenarioStep(&option.Action, &reply))
				return &finding{violation, trace}, nil
			}
		}
		reached := to.fingerprint()
		if _, seen := x.known[reached]; seen {
			continue
		}
		index := int32(len(x.origins))
		x.known[reached] = index
		x.origins = append(x.origins, origin{from.index, int16(i)})
		if x.only == "" || x.only == States {
			if found := x.states(&to.State); found != nil {
				return &finding{*found, x.trace(index)}, nil
			}
		}
		if x.only == "" || x.only == Progress {
			if stuck := x.drain.run(to.State, (&node{State: to.State}).fingerprint()); stuck != nil {
				return &finding{stuck.Violation, append(x.trace(index), stuck.trace...)}, nil
			}
		}
		next = append(next, frontierState{to, index})
	}
	return nil, next
}

// states looks at the states of the rows, once for each table.
func (x *exploration) states(s *State) *Violation {
	table := node{State: State{Table: s.Table}}
	at := table.fingerprint()
	if x.tables[at] {
		return nil
	}
	x.tables[at] = true
	if violations := x.protocol.CheckStates(&s.Table); len(violations) > 0 {
		return &violations[0]
	}
	return nil
}

// take does one of the options.
func (x *exploration) take(from *node, option *option) (node, Reply, error) {
	to := node{faults: from.faults + option.fault, failures: from.failures + option.failure, repairs: from.repairs + option.repair}
	var (
		reply Reply
		err   error
	)
	to.State, reply, err = x.protocol.Step(&from.State, &option.Action)
	return to, reply, err
}

// trace is the way to a state, from the start.
func (x *exploration) trace(index int32) (steps []ScenarioStep) {
	var path []int16
	for at := index; x.origins[at].from >= 0; at = x.origins[at].from {
		path = append(path, x.origins[at].option)
	}
	n := node{State: NewState(x.workers)}
	for _, i := range slices.Backward(path) {
		option := x.options(&n)[i]
		next, reply, err := x.take(&n, &option)
		if err != nil {
			panic(err)
		}
		steps = append(steps, scenarioStep(&option.Action, &reply))
		n = next
	}
	return steps
}
