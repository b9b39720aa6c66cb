package fanoutvet

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// remedyOfRange says how to range over the elements themselves.
func (u *unit) remedyOfRange(c duplicate) string {
	name, of := c.v.Name(), types.ExprString(c.of)
	switch pointee(u.info.TypeOf(c.of)).Underlying().(type) {
	case *types.Slice, *types.Array:
		if u.origin(c.of) == nil {
			return "keep them in a variable and range over its index, or use pointers"
		}
		return fmt.Sprintf("range over the index: for i := range %s { %s := &%s[i] ... }", of, name, of)
	case *types.Map:
		return "store the copy back after it, or let the map hold pointers: map[...]*" + u.typeName(c.v.Type())
	}
	return "range over pointers: *" + u.typeName(c.v.Type())
}

// remedyOfLocal says how to get at the original.
func (u *unit) remedyOfLocal(c duplicate) string {
	if v := u.origin(c.of); u.passedByValue(v) {
		return fmt.Sprintf("pass a pointer: %s *%s", v.Name(), u.typeName(v.Type()))
	}
	if star, ok := c.of.(*ast.StarExpr); ok {
		return fmt.Sprintf("use the pointer: %s := %s", c.v.Name(), types.ExprString(star.X))
	}
	if u.info.Types[c.of].Addressable() {
		return fmt.Sprintf("take a pointer: %s := &%s", c.v.Name(), types.ExprString(c.of))
	}
	return fmt.Sprintf("store the copy back after it: %s = %s", types.ExprString(c.of), c.v.Name())
}

// fixes are the changes that make of a copy a pointer to the original, where nothing else has to
// change with it.
func (u *unit) fixes(c duplicate, uses []use) []analysis.SuggestedFix {
	for _, use := range uses {
		if use.at.ParentEdgeKind() != edge.SelectorExpr_X { // "&o", "o == p" and the like mean something else of a pointer
			return nil
		}
	}
	if u.access.of(c.v.Type()) != byValue {
		return nil
	}
	var fix *analysis.SuggestedFix
	switch c.kind {
	case ofRange:
		fix = u.rangeOverIndex(c)
	case ofReceiver:
		fix = u.pointerReceiver(c)
	case ofLocal:
		fix = u.pointTo(c, uses)
	case ofParameter: // the callers would have to change
	}
	if fix == nil {
		return nil
	}
	return []analysis.SuggestedFix{*fix}
}

// rangeOverIndex makes of "for _, o := range orders {" the two lines "for i := range orders {" and
// "o := &orders[i]".
func (u *unit) rangeOverIndex(c duplicate) *analysis.SuggestedFix {
	n, ok := c.at.Node().(*ast.RangeStmt)
	if !ok || n.Value == nil || u.info.Defs[identOf(n.Value)] != c.v || !u.stays(n) {
		return nil
	}
	if u.info.Scopes[n.Body].Lookup(c.v.Name()) != nil { // declared anew in the body, where it would be declared twice
		return nil
	}
	index := identOf(n.Key).Name
	if index == "_" {
		if index = unusedName(c.at); index == "" {
			return nil
		}
	}
	// The driver formats what it has changed: the semicolon matters where the body begins on the
	// same line.
	declaration := fmt.Sprintf("\n%s := &%s[%s];", c.v.Name(), types.ExprString(n.X), index)
	return &analysis.SuggestedFix{
		Message: "Range over the index",
		TextEdits: []analysis.TextEdit{
			{Pos: n.Key.Pos(), End: n.Value.End(), NewText: []byte(index)},
			{Pos: n.Body.Lbrace + 1, End: n.Body.Lbrace + 1, NewText: []byte(declaration)},
		},
	}
}

func identOf(e ast.Expr) *ast.Ident {
	id, ok := e.(*ast.Ident)
	if !ok {
		return new(ast.Ident)
	}
	return id
}

// stays reports whether what is ranged over is a slice or an array that can be indexed instead: it
// has a name, and the loop leaves it alone.
func (u *unit) stays(n *ast.RangeStmt) bool {
	switch t := u.info.TypeOf(n.X).Underlying().(type) {
	case *types.Slice:
	case *types.Array:
		if !u.info.Types[n.X].Addressable() {
			return false
		}
	case *types.Pointer:
		if _, ok := t.Elem().Underlying().(*types.Array); !ok {
			return false
		}
	default:
		return false
	}
	plain := true
	ast.Inspect(n.X, func(inner ast.Node) bool {
		switch inner.(type) {
		case nil, *ast.Ident, *ast.SelectorExpr:
		default:
			plain = false
		}
		return plain
	})
	v := u.origin(n.X)
	if !plain || v == nil || v.Name() == identOf(n.Value).Name {
		return false
	}
	body, ok := u.root.FindNode(n.Body)
	if !ok {
		return false
	}
	return !u.mentions(body, v, n.Body.Pos(), n.Body.End())
}

// mentions reports whether a variable is mentioned between two places.
func (u *unit) mentions(within inspector.Cursor, v *types.Var, from, to token.Pos) bool {
	for cursor := range within.Preorder((*ast.Ident)(nil)) {
		if id := identOf(expr(cursor)); from <= id.Pos() && id.Pos() < to && u.info.Uses[id] == v {
			return true
		}
	}
	return false
}

func expr(cursor inspector.Cursor) ast.Expr {
	e, _ := cursor.Node().(ast.Expr)
	return e
}

// unusedName is a name for the index that the loop does not use.
func unusedName(loop inspector.Cursor) string {
	used := make(map[string]bool)
	for cursor := range loop.Preorder((*ast.Ident)(nil)) {
		used[identOf(expr(cursor)).Name] = true
	}
	for _, name := range []string{"i", "j", "k", "n", "index"} {
		if !used[name] {
			return name
		}
	}
	return ""
}

// pointerReceiver makes of "func (o Order) Pay()" the method of a pointer, where all who call it in
// this package can go on as they do.
func (u *unit) pointerReceiver(c duplicate) *analysis.SuggestedFix {
	decl, ok := c.at.Node().(*ast.FuncDecl)
	if !ok {
		return nil
	}
	method, ok := u.info.Defs[decl.Name].(*types.Func)
	if !ok || u.mayImplement(method.Name()) {
		return nil
	}
	for cursor := range u.root.Preorder((*ast.SelectorExpr)(nil)) {
		selector, ok := cursor.Node().(*ast.SelectorExpr)
		if !ok {
			continue
		}
		selection := u.info.Selections[selector]
		if selection == nil {
			continue
		}
		if fn, ok := selection.Obj().(*types.Func); !ok || fn.Origin() != method {
			continue
		}
		if selection.Kind() != types.MethodVal || cursor.ParentEdgeKind() != edge.CallExpr_Fun || !selection.Indirect() && !u.info.Types[selector.X].Addressable() {
			return nil
		}
	}
	at := decl.Recv.List[0].Type.Pos()
	return &analysis.SuggestedFix{
		Message:   "Make the receiver a pointer",
		TextEdits: []analysis.TextEdit{{Pos: at, End: at, NewText: []byte("*")}},
	}
}

// mayImplement reports whether an interface that this package writes, or that a package has which
// it imports, has a method of that name: values would no longer implement it.
func (u *unit) mayImplement(name string) bool {
	has := func(t types.Type) bool {
		under, ok := t.Underlying().(*types.Interface)
		return ok && slices.ContainsFunc(slices.Collect(under.Methods()), func(m *types.Func) bool { return m.Name() == name })
	}
	for _, written := range u.info.Types {
		if written.IsType() && has(written.Type) {
			return true
		}
	}
	for _, pkg := range u.pass.Pkg.Imports() {
		for _, declared := range pkg.Scope().Names() {
			if of, ok := pkg.Scope().Lookup(declared).(*types.TypeName); ok && has(of.Type()) {
				return true
			}
		}
	}
	return false
}

// pointTo makes of "o := orders[i]" a pointer to the element, and of "o := *p" the pointer, where
// the original stays alone as long as the copy is in use.
func (u *unit) pointTo(c duplicate, uses []use) *analysis.SuggestedFix {
	if spec, ok := c.at.Node().(*ast.ValueSpec); ok && spec.Type != nil {
		return nil
	}
	v := u.origin(c.of)
	last := uses[len(uses)-1].at.Node().End()
	if u.passedByValue(v) || u.mentions(u.root, v, c.at.Node().End(), last) {
		return nil
	}
	edit := analysis.TextEdit{Pos: c.of.Pos(), End: c.of.Pos(), NewText: []byte("&")}
	if star, ok := c.of.(*ast.StarExpr); ok {
		edit = analysis.TextEdit{Pos: star.Star, End: star.X.Pos()}
	} else if !u.info.Types[c.of].Addressable() {
		return nil
	}
	return &analysis.SuggestedFix{Message: "Use a pointer to the original", TextEdits: []analysis.TextEdit{edit}}
}

// passedByValue reports whether a variable is a parameter, or receiver, that is a copy itself.
func (u *unit) passedByValue(v *types.Var) bool {
	return (v.Kind() == types.ParamVar || v.Kind() == types.RecvVar) && u.access.of(v.Type()) == byValue
}
