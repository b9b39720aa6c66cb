package fanoutvet

import (
	"go/types"
	"strings"
)

const (
	uowPath       = "github.com/gorm-fanout/fanout/uow"
	aggregateName = "Aggregate"
	raiseName     = "Raise"

	envelopePath = "github.com/gorm-fanout/fanout/envelope"
	optionName   = "Option"
)

// An access is how an expression of a type leads to an aggregate.
type access int

const (
	noAccess access = iota
	// byValue is a struct that embeds uow.Aggregate, or has it in a field, at any depth, or an
	// array of such: who copies it, copies the aggregate.
	byValue
	byPointer   // points to such a value
	byInterface // an interface or type parameter that has the Raise of aggregates
	// byParameter is any other type parameter: what it stands for may hold an aggregate. What is
	// done with its values tells.
	byParameter
)

// accesses remembers the access of types.
type accesses map[types.Type]access

func (known accesses) of(t types.Type) access {
	if found, ok := known[t]; ok {
		return found
	}
	known[t] = noAccess // should the type lead back to itself
	found := known.find(t)
	known[t] = found
	return found
}

func (known accesses) find(t types.Type) access {
	t = types.Unalias(t)
	if param, ok := t.(*types.TypeParam); ok {
		if isRaiser(param) {
			return byInterface
		}
		return byParameter
	}
	if isAggregate(t) {
		return byValue
	}
	switch under := t.Underlying().(type) {
	case *types.Struct:
		for field := range under.Fields() {
			if known.of(field.Type()) == byValue {
				return byValue
			}
		}
	case *types.Array:
		if known.of(under.Elem()) == byValue {
			return byValue
		}
	case *types.Pointer:
		if known.of(under.Elem()) == byValue {
			return byPointer
		}
	case *types.Interface:
		if isRaiser(under) {
			return byInterface
		}
	}
	return noAccess
}

func isAggregate(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == aggregateName && declaredIn(named.Obj(), uowPath)
}

// isRaiser reports whether an interface, or the constraint of a type parameter, has uow.Aggregate's
// method Raise. Its options tell it from any other method of that name.
func isRaiser(t types.Type) bool {
	under, ok := t.Underlying().(*types.Interface)
	if !ok {
		return false
	}
	for method := range under.Methods() {
		if method.Name() == raiseName && takesOptions(method.Signature()) {
			return true
		}
	}
	return false
}

func takesOptions(signature *types.Signature) bool {
	if !signature.Variadic() || signature.Params().Len() != 2 {
		return false
	}
	options, ok := types.Unalias(signature.Params().At(1).Type()).(*types.Slice)
	if !ok {
		return false
	}
	option, ok := types.Unalias(options.Elem()).(*types.Named)
	return ok && option.Obj().Name() == optionName && declaredIn(option.Obj(), envelopePath)
}

// declaredIn reports whether something is declared in a package, which go vet calls "...
// [....test]" where it is compiled together with its tests.
func declaredIn(object types.Object, pkg string) bool {
	if object.Pkg() == nil {
		return false
	}
	path, _, _ := strings.Cut(object.Pkg().Path(), " ")
	return path == pkg
}

// isRaise reports whether a method is uow.Aggregate's own Raise.
func isRaise(fn *types.Func) bool {
	if fn.Name() != raiseName || !declaredIn(fn, uowPath) {
		return false
	}
	recv := fn.Signature().Recv()
	return recv != nil && isAggregate(pointee(recv.Type()))
}

// pointee is what a pointer type points to, and any other type itself.
func pointee(t types.Type) types.Type {
	if pointer, ok := types.Unalias(t).Underlying().(*types.Pointer); ok {
		return pointer.Elem()
	}
	return t
}

// part follows a selection to the value of which it selects a field or method: through embedded
// fields. ok is false when there is a pointer on the way, behind which begins something else that
// copies share.
func part(selection *types.Selection) (t types.Type, ok bool) {
	t = pointee(selection.Recv())
	path := selection.Index()
	for _, index := range path[:len(path)-1] {
		under, isStruct := types.Unalias(t).Underlying().(*types.Struct)
		if !isStruct || index >= under.NumFields() {
			return nil, false
		}
		t = under.Field(index).Type()
		if _, isPointer := types.Unalias(t).Underlying().(*types.Pointer); isPointer {
			return nil, false
		}
	}
	return t, true
}
