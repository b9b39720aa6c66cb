package dedup

import "slices"

// A Step is a part of the processing of a message, by its name: "load", "check", "handle", "save",
// "redraw", "create", "ready", "dispatch", "remember", "sweep" and "clear", in this order. After each
// of them a process may die; the package's documentation has what is repeated then.
type Step string

// The steps, in their order. Those from Redraw to Ready, and Sweep, belong to tokens, and happen
// only where there is something to do.
const (
	stepLoad     Step = "load"
	stepCheck    Step = "check"
	stepHandle   Step = "handle"
	stepSave     Step = "save"
	stepRedraw   Step = "redraw"
	stepCreate   Step = "create"
	stepReady    Step = "ready"
	stepDispatch Step = "dispatch"
	stepRemember Step = "remember"
	stepSweep    Step = "sweep"
	stepClear    Step = "clear"
)

var steps = []Step{
	stepLoad, stepCheck, stepHandle, stepSave, stepRedraw, stepCreate, stepReady, stepDispatch, stepRemember, stepSweep, stepClear,
}

// Steps lists all steps in their order, for tests that crash after each of them; see
// [Config].After.
func Steps() []Step { return slices.Clone(steps) }
