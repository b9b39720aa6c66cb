// Package journal is what packages uow and gormplugin share and applications never see: it finds
// the recorder of an aggregate, keeps what the aggregate raises in order, notes what a transaction
// does to aggregates, and tells at the commit which events are to be written.
//
// In the order in which an event meets them: a [Recorder], found by [RecorderOf], keeps what was
// raised ([Raised]); the [Journal] of a transaction notes which aggregates it writes, and what its
// savepoints undo; [Journal.Collect] is what the commit flushes; an [Attempt] lets a repeated unit
// of work raise the same messages again.
package journal
