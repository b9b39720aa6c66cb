package fanoutvet

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// An effect is what one use of a variable does to the aggregate in it, or behind it.
type effect int

const (
	// leaks is all that lets others have the aggregate, or may: from then on they can save it. It
	// is also what is not understood.
	leaks effect = iota
	reads
	writes   // to a field beside the aggregate, here or in a function
	replaces // overwrites the whole, or the aggregate with what it had raised
	raises
)

// A use is one mention of a variable.
type use struct {
	effect effect
	at     inspector.Cursor // the identifier

	// Of a use that raises: the call, and whether it is of Raise itself, and not of a function that
	// calls it.
	call    *ast.CallExpr
	direct  bool
	changes bool // the function sets fields, too
}

// use finds out what a mention of a variable does. It goes outwards from the identifier for as long
// as the expression is the aggregate, a part of the variable that holds it, or its address.
func (u *unit) use(id inspector.Cursor) use {
	for cursor := id; ; {
		found, outer := u.step(cursor)
		if outer {
			cursor = cursor.Parent()
			continue
		}
		found.at = id
		return found
	}
}

// step looks at what surrounds an expression. outer says that it is the aggregate once more.
func (u *unit) step(cursor inspector.Cursor) (found use, outer bool) {
	kind, index := cursor.ParentEdge()
	switch n := cursor.Parent().Node().(type) {
	case *ast.ParenExpr, *ast.StarExpr:
		return use{}, true
	case *ast.UnaryExpr:
		return use{}, n.Op == token.AND
	case *ast.IndexExpr:
		if kind != edge.IndexExpr_X { // a key of a map
			return use{}, false
		}
		return use{effect: reads}, u.access.of(u.info.TypeOf(n)) == byValue
	case *ast.SelectorExpr:
		return u.selected(cursor.Parent(), n)
	case *ast.CallExpr:
		if kind != edge.CallExpr_Args {
			return use{}, false
		}
		return u.passed(n, index)
	case *ast.AssignStmt:
		return use{effect: assigned(n, kind, index)}, false
	case *ast.BinaryExpr:
		return use{effect: reads}, false
	}
	return use{}, false
}

// assigned tells what becomes of an expression that stands on one side of an assignment.
func assigned(n *ast.AssignStmt, kind edge.Kind, index int) effect {
	if kind == edge.AssignStmt_Lhs {
		return replaces
	}
	if id, ok := n.Lhs[min(index, len(n.Lhs)-1)].(*ast.Ident); ok && id.Name == "_" {
		return reads
	}
	return leaks
}

// selected looks at a field or method of the aggregate. The cursor stands on the selector.
func (u *unit) selected(cursor inspector.Cursor, n *ast.SelectorExpr) (found use, outer bool) {
	selection := u.info.Selections[n]
	if selection == nil {
		return use{}, false
	}
	of, within := part(selection)
	if !within {
		return use{effect: reads}, false
	}
	if selection.Kind() == types.FieldVal {
		if u.access.of(u.info.TypeOf(n)) == byValue {
			return use{}, true
		}
		return use{effect: readOrWritten(cursor)}, false
	}
	return u.method(cursor, selection, of), false
}

// method looks at a method of the aggregate, or of a part of it.
func (u *unit) method(cursor inspector.Cursor, selection *types.Selection, of types.Type) use {
	for cursor.ParentEdgeKind() == edge.ParenExpr_X {
		cursor = cursor.Parent()
	}
	call, ok := cursor.Parent().Node().(*ast.CallExpr)
	called := ok && cursor.ParentEdgeKind() == edge.CallExpr_Fun
	fn, ok := selection.Obj().(*types.Func)
	if !ok {
		return use{}
	}
	switch how := u.access.of(of); {
	case how == noAccess: // a part without the aggregate
		return use{effect: reads}
	case !called: // a method value keeps its receiver
		return use{}
	case isRaise(fn), how == byInterface && fn.Name() == raiseName:
		return use{effect: raises, call: call, direct: true}
	}
	return u.given(call, fn, 0, u.access.of(fn.Signature().Recv().Type()))
}

// passed looks at an argument of a call.
func (u *unit) passed(call *ast.CallExpr, index int) (found use, outer bool) {
	if fun := u.info.Types[call.Fun]; fun.IsType() {
		to := u.access.of(u.info.TypeOf(call))
		return use{}, to == byValue || to == byPointer || to == byInterface
	}
	fn := typeutil.StaticCallee(u.info, call)
	if fn == nil {
		return use{}, false
	}
	if prints(fn) && u.access.of(u.info.TypeOf(call.Args[index])) == byValue {
		return use{effect: reads}, false
	}
	signature := fn.Signature()
	if selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		if selection := u.info.Selections[selector]; selection != nil && selection.Kind() == types.MethodExpr {
			return use{}, false
		}
	}
	if signature.Variadic() && index >= signature.Params().Len()-1 {
		return use{}, false
	}
	slot := index
	if signature.Recv() != nil {
		slot++
	}
	to := u.access.of(signature.Params().At(index).Type())
	if to == byInterface && !u.promotesRaise(u.info.TypeOf(call.Args[index])) {
		return use{}, false
	}
	return u.given(call, fn, slot, to), false
}

// prints reports whether a function belongs to a package that prints what it is given.
func prints(fn *types.Func) bool {
	if fn.Pkg() == nil {
		return false
	}
	switch fn.Pkg().Path() {
	case "fmt", "log", "log/slog":
		return true
	}
	return false
}

// promotesRaise reports whether Raise, called by an interface, is uow.Aggregate's own, and not
// another one that hides it.
func (u *unit) promotesRaise(t types.Type) bool {
	if u.access.of(t) == byInterface {
		return true
	}
	object, _, _ := types.LookupFieldOrMethod(t, true, u.pass.Pkg, raiseName)
	fn, ok := object.(*types.Func)
	return ok && isRaise(fn)
}

// given is the use of what a function gets as its receiver or as a parameter, by value or not.
func (u *unit) given(call *ast.CallExpr, fn *types.Func, slot int, how access) use {
	done := u.treatment(fn, slot)
	switch {
	case done == passesOn:
		return use{}
	case how == byValue: // what it changes, and that on which it raises, is a copy of its own: it is reported for that
		return use{effect: reads}
	case done&raisesOn != 0:
		return use{effect: raises, call: call, changes: done&changes != 0}
	case done&changes != 0:
		return use{effect: writes}
	}
	return use{effect: reads}
}

// readOrWritten tells whether a field, or what is selected of it, is assigned to.
func readOrWritten(cursor inspector.Cursor) effect {
	for {
		switch cursor.ParentEdgeKind() {
		case edge.ParenExpr_X, edge.SelectorExpr_X, edge.IndexExpr_X, edge.StarExpr_X:
			cursor = cursor.Parent()
		case edge.AssignStmt_Lhs, edge.IncDecStmt_X:
			return writes
		default:
			return reads
		}
	}
}
