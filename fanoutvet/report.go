package fanoutvet

import (
	"fmt"
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// report says what is wrong, what happens, and what to do.
func (u *unit) report(c duplicate, uses []use, raise use, shared sharing) {
	name := c.v.Name()
	what := fmt.Sprintf("%s raises an event on %s", types.ExprString(raise.call.Fun), name)
	happens := "unless GORM loaded it, the event is lost"
	if shared == sinceLoaded {
		happens = "the event is sent, but the change is lost"
	}
	diagnostic := analysis.Diagnostic{Pos: raise.call.Pos(), End: raise.call.End()}
	switch c.kind {
	case ofRange:
		diagnostic.Message = fmt.Sprintf("%s, a copy of an element of %s that is neither saved nor stored back: %s; %s", what, types.ExprString(c.of), happens, u.remedyOfRange(c))
	case ofReceiver:
		method, receiver := u.receiver(c)
		diagnostic.Message = fmt.Sprintf("%s, a value receiver and so a copy: %s; take a pointer: func (%s *%s) %s", what, happens, name, receiver, method)
	case ofParameter:
		diagnostic.Message = fmt.Sprintf("%s, a parameter passed by value and so a copy: %s; take a pointer: %s *%s", what, happens, name, u.typeName(c.v.Type()))
	case ofLocal:
		diagnostic.Message = fmt.Sprintf("%s, a copy of %s that is neither saved nor stored back: %s; %s", what, types.ExprString(c.of), happens, u.remedyOfLocal(c))
	}
	diagnostic.SuggestedFixes = u.fixes(c, uses)
	u.pass.Report(diagnostic)
}

// typeName is a type as the package writes it.
func (u *unit) typeName(t types.Type) string {
	return types.TypeString(t, func(of *types.Package) string {
		if of == u.pass.Pkg {
			return ""
		}
		return of.Name()
	})
}

// receiver is the method that raises on its receiver, and the type as it is written.
func (u *unit) receiver(c duplicate) (method, receiver string) {
	decl, ok := c.at.Node().(*ast.FuncDecl)
	if !ok {
		return "", ""
	}
	return decl.Name.Name, types.ExprString(decl.Recv.List[0].Type)
}
