package fanoutvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// A copyKind is how a variable became a copy.
type copyKind int

const (
	ofRange     copyKind = iota // the variable of a range loop
	ofReceiver                  // a value receiver
	ofParameter                 // a parameter by value
	ofLocal                     // a variable that was given the value of another place
)

// A duplicate is a variable that holds a copy of an aggregate.
type duplicate struct {
	kind copyKind
	v    *types.Var
	at   inspector.Cursor // what declares it: RangeStmt, FuncDecl, FuncLit, AssignStmt or ValueSpec
	of   ast.Expr         // what it is a copy of, or of which it is an element; nil for receivers and parameters
}

// copies finds the variables that are copies, in the order of the text.
func (u *unit) copies() (found []duplicate) {
	ranged := make(map[types.Object]duplicate)
	declared := []ast.Node{(*ast.RangeStmt)(nil), (*ast.FuncDecl)(nil), (*ast.FuncLit)(nil), (*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil)}
	for cursor := range u.root.Preorder(declared...) {
		switch n := cursor.Node().(type) {
		case *ast.RangeStmt:
			for _, element := range []ast.Expr{n.Key, n.Value} {
				if v := u.declares(element); v != nil {
					ranged[v] = duplicate{ofRange, v, cursor, n.X}
					found = append(found, ranged[v])
				}
			}
		case *ast.FuncDecl:
			found = u.parametersOf(found, cursor, n.Recv, ofReceiver)
			found = u.parametersOf(found, cursor, n.Type.Params, ofParameter)
		case *ast.FuncLit:
			found = u.parametersOf(found, cursor, n.Type.Params, ofParameter)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				found = u.locals(found, cursor, n.Lhs, n.Rhs, ranged)
			}
		case *ast.ValueSpec:
			names := make([]ast.Expr, len(n.Names))
			for i, name := range n.Names {
				names[i] = name
			}
			found = u.locals(found, cursor, names, n.Values, ranged)
		}
	}
	return found
}

// declares is the variable that an identifier declares, if it is used and holds an aggregate.
func (u *unit) declares(e ast.Expr) *types.Var {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	v, ok := u.info.Defs[id].(*types.Var)
	if !ok || len(u.uses[v]) == 0 {
		return nil
	}
	if how := u.access.of(v.Type()); how != byValue && how != byParameter {
		return nil
	}
	return v
}

func (u *unit) parametersOf(found []duplicate, cursor inspector.Cursor, fields *ast.FieldList, kind copyKind) []duplicate {
	if fields == nil {
		return found
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			if v := u.declares(name); v != nil {
				found = append(found, duplicate{kind, v, cursor, nil})
			}
		}
	}
	return found
}

// locals finds variables that are declared as copies of what stays where it is: an element, a
// field, another variable, or what a pointer points to. What a function returns belongs to no one
// else, and so is no copy.
func (u *unit) locals(found []duplicate, cursor inspector.Cursor, names, values []ast.Expr, ranged map[types.Object]duplicate) []duplicate {
	for i, name := range names {
		v := u.declares(name)
		if v == nil || v.Kind() == types.PackageVar || len(values) == 0 || len(values) != len(names) && i > 0 {
			continue
		}
		value := ast.Unparen(values[i])
		if id, ok := value.(*ast.Ident); ok { // "o := o" in a range loop
			if outer, ok := ranged[u.info.Uses[id]]; ok {
				ranged[v] = duplicate{ofRange, v, cursor, outer.of}
				found = append(found, ranged[v])
				continue
			}
		}
		if u.origin(value) != nil {
			found = append(found, duplicate{ofLocal, v, cursor, value})
		}
	}
	return found
}

// origin is the variable in, or behind, which an expression finds its value; nil where it does not
// find one, but makes one.
func (u *unit) origin(e ast.Expr) *types.Var {
	for {
		switch n := e.(type) {
		case *ast.ParenExpr:
			e = n.X
		case *ast.StarExpr:
			e = n.X
		case *ast.IndexExpr:
			e = n.X
		case *ast.SliceExpr:
			e = n.X
		case *ast.UnaryExpr:
			if n.Op != token.AND {
				return nil
			}
			e = n.X
		case *ast.SelectorExpr:
			if u.info.Selections[n] == nil { // of a package
				e = n.Sel
			} else {
				e = n.X
			}
		case *ast.Ident:
			v, _ := u.info.Uses[n].(*types.Var)
			return v
		default:
			return nil
		}
	}
}

// judge reports a copy on which events are raised that cannot be emitted.
func (u *unit) judge(c duplicate) {
	uses := make([]use, len(u.uses[c.v]))
	for i, id := range u.uses[c.v] {
		uses[i] = u.use(id)
		if uses[i].effect == leaks || uses[i].effect == replaces {
			return
		}
	}
	first := slices.IndexFunc(uses, func(a use) bool { return a.effect == raises })
	if first < 0 {
		return
	}
	shared := u.shares(c)
	changed := slices.ContainsFunc(uses, func(a use) bool { return a.changes || a.effect == writes })
	if shared == sinceRaised || shared == sinceLoaded && !changed {
		return
	}
	if c.kind == ofLocal && u.inTest(c) { // a copy to try something on
		return
	}
	if !slices.ContainsFunc(uses, func(a use) bool { return a.direct }) && u.isSubject(c, uses, uses[first]) {
		return
	}
	u.report(c, uses, uses[first], shared)
}

// isSubject reports whether a copy may be what the code is about, though a method that is
// called on it happens to raise: a calculation with a copy that is thrown away, or a test of domain
// code. Then the code looks at the copy afterwards. Where Raise itself is called there is no such
// doubt: the event is wanted.
func (u *unit) isSubject(c duplicate, uses []use, raise use) bool {
	seen := u.lookedAt(c, uses, raise)
	switch c.kind {
	case ofRange: // if the elements are shared with nothing else, no other element could be saved
		return (len(seen) > 0 || resultUsed(raise)) && !u.reachable(c)
	case ofLocal:
		return len(seen) > 0 || resultUsed(raise)
	case ofParameter:
		if u.inTest(c) && len(seen) > 0 {
			return true
		}
	case ofReceiver:
	}
	return slices.ContainsFunc(seen, returned)
}

func (u *unit) inTest(c duplicate) bool {
	return strings.HasSuffix(u.pass.Fset.File(c.at.Node().Pos()).Name(), "_test.go")
}

// lookedAt are the uses that look at a copy after events were raised on it, perhaps in the turn of
// a loop before.
func (u *unit) lookedAt(c duplicate, uses []use, raise use) (seen []inspector.Cursor) {
	from := raise.call.End()
	for loop := range raise.at.Enclosing((*ast.ForStmt)(nil), (*ast.RangeStmt)(nil)) {
		if loop.Node().Pos() > c.at.Node().Pos() {
			from = loop.Node().Pos()
		}
	}
	for _, use := range uses {
		pos := use.at.Node().Pos()
		within := raise.call.Pos() <= pos && pos < raise.call.End()
		if use.effect == reads && pos >= from && !within {
			seen = append(seen, use.at)
		}
	}
	return seen
}

// returned reports whether a function returns what it reads here, itself and not what another
// function makes of it.
func returned(cursor inspector.Cursor) bool {
	for {
		switch cursor.Parent().Node().(type) {
		case *ast.ReturnStmt:
			return true
		case *ast.CallExpr:
			if cursor.ParentEdgeKind() == edge.CallExpr_Args {
				return false
			}
		case ast.Stmt, nil:
			return false
		}
		cursor = cursor.Parent()
	}
}

// resultUsed reports whether what the call that raises returns is used.
func resultUsed(raise use) bool {
	for cursor := range raise.at.Enclosing((*ast.CallExpr)(nil)) {
		if cursor.Node() != raise.call {
			continue
		}
		switch n := cursor.Parent().Node().(type) {
		case *ast.ExprStmt, *ast.GoStmt, *ast.DeferStmt:
			return false
		case *ast.AssignStmt:
			id, ok := n.Lhs[0].(*ast.Ident)
			return !ok || id.Name != "_" || len(n.Lhs) > 1
		}
		return true
	}
	return false
}

// reachable reports whether anybody but the loop has the elements over which it ranges.
func (u *unit) reachable(c duplicate) bool {
	v := u.origin(c.of)
	if v == nil {
		return false
	}
	inside, ok := u.functionOf(v)
	if !ok { // of the package, or a parameter
		return true
	}
	for cursor := range inside.Preorder((*ast.Ident)(nil)) {
		if id, ok := cursor.Node().(*ast.Ident); ok && u.info.Uses[id] == v && !onlyRanged(cursor) {
			return true
		}
	}
	return false
}

// functionOf is the function, or the body of one, that declares a local variable which is no
// parameter.
func (u *unit) functionOf(v *types.Var) (inspector.Cursor, bool) {
	if v.Kind() != types.LocalVar {
		return inspector.Cursor{}, false
	}
	at, ok := u.root.FindByPos(v.Pos(), v.Pos())
	if !ok {
		return inspector.Cursor{}, false
	}
	for function := range at.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		return function, true
	}
	return inspector.Cursor{}, false
}

// onlyRanged reports whether a mention of a slice only ranges over it, measures it, or makes it.
func onlyRanged(cursor inspector.Cursor) bool {
	switch n := cursor.Parent().Node().(type) {
	case *ast.RangeStmt:
		return cursor.ParentEdgeKind() == edge.RangeStmt_X
	case *ast.AssignStmt:
		return cursor.ParentEdgeKind() == edge.AssignStmt_Lhs
	case *ast.CallExpr:
		fun, ok := n.Fun.(*ast.Ident)
		if !ok || cursor.ParentEdgeKind() != edge.CallExpr_Args {
			return false
		}
		return fun.Name == "len" || fun.Name == "cap" || fun.Name == "append" && cursor.ParentEdgeIndex() == 0
	}
	return false
}
