package envelope

import (
	"bytes"
	"errors"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
)

// The functions of contracts are to copy and do nothing else. Here is how it is known that they have done more.
var (
	errOptionChanges   = errors.New("a function of its options has changed what the event's slices, maps or pointers hold")
	errContractChanges = errors.New("its function has changed what the event's slices, maps or pointers hold")
	errContractRaises  = errors.New("its function raises an event")
)

// changed reports whether an event has other JSON than it had. Of one that writes it otherwise each time, such as a set in
// the order of a map, or raises events as it does, nothing can be said.
func changed(event any, was []byte) (is bool) {
	const tries = 16
	var first []byte
	raisingNothing(func() {
		for try := range tries {
			again, err := encodeJSON(addressable(event))
			switch {
			case errors.Is(err, errContractRaises), bytes.Equal(again, was), try > 0 && !bytes.Equal(again, first):
				return
			}
			first = again
		}
		is = true
	})
	return is
}

// quiet counts the calls of raisingNothing.
var quiet atomic.Int64

// raisingNothing calls what must raise no event: [NewEvent] panics then.
func raisingNothing(f func()) {
	quiet.Add(1)
	defer quiet.Add(-1)
	f()
}

var nameOfRaisingNothing = runtime.FuncForPC(reflect.ValueOf(raisingNothing).Pointer()).Name()

// isQuiet reports whether raisingNothing is among the callers. It looks at them where some goroutine is there.
func isQuiet() bool {
	if quiet.Load() == 0 {
		return false
	}
	for callers, skip := make([]uintptr, 64), 0; ; skip += len(callers) {
		n := runtime.Callers(skip, callers)
		frames := runtime.CallersFrames(callers[:n])
		for more := n > 0; more; {
			var frame runtime.Frame
			if frame, more = frames.Next(); frame.Function == nameOfRaisingNothing {
				return true
			}
		}
		if n < len(callers) {
			return false
		}
	}
}

// sharesMemory reports whether copies of a value share some of it.
func sharesMemory(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return sharesMemory(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() { // its location is not changed
			return false
		}
		for i := range t.NumField() {
			if sharesMemory(t.Field(i).Type) {
				return true
			}
		}
		return false
	default:
		return t.Kind() > reflect.Complex128 && t.Kind() != reflect.String
	}
}
