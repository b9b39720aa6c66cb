package dedup

import "slices"

// A Step is a part of the processing of a message. After each of them a process may die; package
// documentation has what is repeated then.
type Step string

// The steps, in their order. Those from Redraw to Ready, and Sweep, belong to tokens, and happen
// only where there is something to do.
const (
	StepLoad     Step = "load"
	StepCheck    Step = "check"
	StepHandle   Step = "handle"
	StepSave     Step = "save"
	StepRedraw   Step = "redraw"
	StepCreate   Step = "create"
	StepReady    Step = "ready"
	StepDispatch Step = "dispatch"
	StepRemember Step = "remember"
	StepSweep    Step = "sweep"
	StepClear    Step = "clear"
)

var steps = []Step{
	StepLoad, StepCheck, StepHandle, StepSave, StepRedraw, StepCreate, StepReady, StepDispatch, StepRemember, StepSweep, StepClear,
}

// Steps lists all steps in their order, for tests that crash after each of them; see
// [Config].After.
func Steps() []Step { return slices.Clone(steps) }
