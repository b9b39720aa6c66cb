package transaction

import (
	"reflect"
	"runtime"
	"sync"
	"weak"
)

// Marks keep one V for each transaction that is in use, and let go of it with the transaction. The
// zero value is empty. It is safe for concurrent use.
type Marks[V any] struct {
	marks sync.Map // weak.Pointer[byte] -> *V
}

// Of is the mark of a transaction that [Innermost] has returned: a zero V the first time, and each
// time where the transaction is no pointer, which nothing tells from another one.
func (m *Marks[V]) Of(innermost any) *V {
	v := reflect.ValueOf(innermost)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().Size() == 0 {
		return new(V)
	}
	address := (*byte)(v.UnsafePointer())
	key := weak.Make(address)
	mark, known := m.marks.LoadOrStore(key, new(V))
	if !known {
		runtime.AddCleanup(address, func(key weak.Pointer[byte]) { m.marks.Delete(key) }, key)
	}
	runtime.KeepAlive(innermost)
	return mark.(*V) //nolint:forcetypeassert // the map holds nothing else
}

// Len is the number of marks.
func (m *Marks[V]) Len() (n int) {
	m.marks.Range(func(any, any) bool { n++; return true })
	return n
}
