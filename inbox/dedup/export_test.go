package dedup

// The steps, for tests that name them.
const (
	StepLoad     = stepLoad
	StepCheck    = stepCheck
	StepHandle   = stepHandle
	StepSave     = stepSave
	StepRedraw   = stepRedraw
	StepCreate   = stepCreate
	StepReady    = stepReady
	StepDispatch = stepDispatch
	StepRemember = stepRemember
	StepSweep    = stepSweep
	StepClear    = stepClear
)
