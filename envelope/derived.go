package envelope

import (
	"reflect"
	"slices"
	"sync"
	"weak"
)

// derived is what the functions of a registered type's options say about one event
// at the time when it is raised: at the commit they might see what its slices, maps
// and pointers have become.
type derived struct {
	of *EventType
	functions
	converted []converted // by contract
	encoded   *encoded    // nil where the type has no encoding
	place     string      // where the event was raised, of one that has failed, or is converted once more
}

// deriving holds the registrations that have such functions, by Go type: whoever
// raises an event knows no catalog. It keeps none of them alive.
var deriving struct {
	sync.Mutex // of writers

	byType sync.Map // reflect.Type -> []weak.Pointer[EventType], never changed in place
}

// remember makes NewEvent call the functions of a registration.
func (t *EventType) remember() {
	if t.settings.none() && len(t.conversions) == 0 && t.settings.encoding == nil {
		return
	}
	deriving.Lock()
	defer deriving.Unlock()
	alive := slices.DeleteFunc(slices.Clone(registrations(t.goType)), func(p weak.Pointer[EventType]) bool { return p.Value() == nil })
	deriving.byType.Store(t.goType, append(alive, weak.Make(t)))
}

func registrations(t reflect.Type) []weak.Pointer[EventType] {
	known, _ := deriving.byType.Load(t)
	pointers, _ := known.([]weak.Pointer[EventType])
	return pointers
}

// hasEncoding reports whether a registration of a type has an encoding.
func hasEncoding(t reflect.Type) bool {
	return slices.ContainsFunc(registrations(t), func(p weak.Pointer[EventType]) bool {
		et := p.Value()
		return et != nil && et.settings.encoding != nil
	})
}

// derive asks the functions of all registrations of a type about an event, whose JSON this is.
func derive(t reflect.Type, data any, json []byte) (all []derived) {
	for _, pointer := range registrations(t) {
		et := pointer.Value()
		if et == nil {
			continue
		}
		d := derived{of: et, functions: et.settings.fixed(data)}
		if encoding := et.settings.encoding; encoding != nil {
			made := encoding.encode(data, et.leavesItself())
			if d.encoded = &made; made.err != nil {
				d.place = raisedAt()
			}
		}
		if len(et.conversions) > 0 {
			failed := awaitsID(t, data)
			d.converted = et.convert(data, json)
			failed = failed || slices.ContainsFunc(d.converted, func(one converted) bool { return one.err != nil })
			if failed {
				d.place = raisedAt()
			}
		}
		all = append(all, d)
	}
	return all
}

// fixOptions returns a copy of options in which functions of the event have been
// called. One that does not fit the event panics here, and is refused by Seal.
func fixOptions(data any, options []Option) []Option {
	fixed := slices.Clone(options)
	for i, given := range fixed {
		if isNilOption(given) {
			continue
		}
		if fix := given.option().fix; fix != nil {
			fixed[i] = fix(data)
		}
	}
	return fixed
}

// fix calls f and returns a function that does again what f did: return, or panic.
func fix[T any](f func(event any) T, data any) func(event any) T {
	var (
		result   T
		reason   any
		returned bool
	)
	func() {
		defer func() {
			if !returned {
				reason = recover()
			}
		}()
		result = f(data)
		returned = true
	}()
	return func(any) T {
		if !returned {
			panic(reason) // Seal makes an error of it
		}
		return result
	}
}
