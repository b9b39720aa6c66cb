package fanoutvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// Sharing is why a copy shares the events of its original, as far as the function shows.
type sharing int

const (
	notShared sharing = iota
	sinceRaised
	sinceLoaded // GORM has loaded the original, and the plugin has given it its list of events
)

// shares tells whether the original had its list of events when it was copied: because something
// was raised on it before, or because GORM has loaded it.
func (u *unit) shares(c duplicate) sharing {
	if c.of == nil {
		return notShared
	}
	v := u.origin(c.of)
	if v == nil {
		return notShared
	}
	found := notShared
	for function := range c.at.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		if u.isBatch(function, v) {
			found = sinceLoaded
		}
		for cursor := range function.Preorder((*ast.Ident)(nil)) {
			id := identOf(expr(cursor))
			if id.Pos() >= c.at.Node().Pos() || u.info.ObjectOf(id) != v {
				continue
			}
			if u.raisesOn(cursor) {
				return sinceRaised
			}
			if u.loads(cursor) {
				found = sinceLoaded
			}
		}
	}
	return found
}

// raisesOn reports whether events are raised on a variable, or on an element or a field of it.
func (u *unit) raisesOn(cursor inspector.Cursor) bool {
	return u.use(u.place(cursor)).effect == raises
}

// place goes from a variable to the field or element of it that is mentioned.
func (u *unit) place(cursor inspector.Cursor) inspector.Cursor {
	for {
		switch cursor.ParentEdgeKind() {
		case edge.SelectorExpr_X:
			selector, ok := cursor.Parent().Node().(*ast.SelectorExpr)
			if !ok {
				return cursor
			}
			if selection := u.info.Selections[selector]; selection == nil || selection.Kind() != types.FieldVal {
				return cursor
			}
		case edge.IndexExpr_X, edge.ParenExpr_X, edge.StarExpr_X:
		default:
			return cursor
		}
		cursor = cursor.Parent()
	}
}

// loads reports whether a variable is given to GORM as what to load, or is what a call of GORM's
// returned.
func (u *unit) loads(cursor inspector.Cursor) bool {
	cursor = u.place(cursor)
	if cursor.ParentEdgeKind() == edge.UnaryExpr_X {
		cursor = cursor.Parent()
	}
	switch n := cursor.Parent().Node().(type) {
	case *ast.CallExpr:
		return cursor.ParentEdgeKind() == edge.CallExpr_Args && u.isLoad(n)
	case *ast.AssignStmt:
		call, ok := ast.Unparen(n.Rhs[0]).(*ast.CallExpr)
		return ok && cursor.ParentEdgeKind() == edge.AssignStmt_Lhs && cursor.ParentEdgeIndex() == 0 && u.isLoad(call)
	}
	return false
}

// isBatch reports whether a function is what FindInBatches calls, and the variable the batch that
// it gets.
func (u *unit) isBatch(function inspector.Cursor, v *types.Var) bool {
	call, ok := function.Parent().Node().(*ast.CallExpr)
	inside := function.Node().Pos() <= v.Pos() && v.Pos() < function.Node().End()
	return ok && inside && v.Kind() == types.ParamVar && u.isLoad(call)
}

// isLoad reports whether a call has GORM load aggregates. Those that Scan fills, and those that it
// creates, are not given a list of events.
func (u *unit) isLoad(call *ast.CallExpr) bool {
	fn, ok := typeutil.Callee(u.info, call).(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Pkg().Path() != "gorm.io/gorm" {
		return false
	}
	switch fn.Name() {
	case "First", "Take", "Last", "Find", "FindInBatches":
		return true
	}
	return false
}
