// Package sqlcheck finds out, from a package's source, whether what it sends to a database as SQL
// is made of constants, of what renders its embedded files, and of a table name that was checked,
// and of nothing else.
//
// It goes back from each call of a method that takes SQL to where the text comes from: through
// variables, results and parameters, and from these to all callers in the package. What it cannot
// follow is reported.
package sqlcheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strings"
)

// sinks are the methods that take SQL, of database/sql and of pgx, and at which place.
var sinks = map[string]int{
	"Exec": 1, "Query": 1, "QueryRow": 1, "Prepare": 1, "ExecContext": 1, "QueryContext": 1, "QueryRowContext": 1, "PrepareContext": 1, "Queue": 0,
}

// Trusted is what a package's texts may be made of beside constants.
type Trusted struct {
	// Functions whose results are SQL, whatever they are given: the renderers of embedded files.
	Functions []string
	// Fields that hold nothing else: the rendered texts, the table's name that was checked. As
	// "sql" for s.sql.claim, "table" for s.table.
	Fields []string
	// Packages whose constants count as this one's.
	Packages []string
	// Except are functions that are not looked into. Say why.
	Except []string
}

// A sink is a function of the package that sends one of its parameters.
type sink struct {
	place, parameters int
	variadic          bool
}

func (s sink) matches(call *ast.CallExpr) bool {
	return len(call.Args) == s.parameters || s.variadic && len(call.Args) >= s.parameters-1
}

// A checker looks at one package.
type checker struct {
	Trusted

	files    *token.FileSet
	funcs    map[string][]*ast.FuncDecl
	consts   map[string]bool
	sinks    map[string][]sink
	known    int // how many sinks there are
	reported []string
	count    int
}

// Check reports each text of which it is not known where it comes from, and how many calls it has
// looked at.
func Check(dir fs.FS, trusted Trusted) (calls int, reports []string, err error) {
	c := &checker{Trusted: trusted, files: token.NewFileSet(), funcs: map[string][]*ast.FuncDecl{}, consts: map[string]bool{}, sinks: map[string][]sink{}}
	names, err := fs.Glob(dir, "*.go")
	if err != nil {
		return 0, nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := fs.ReadFile(dir, name)
		if err != nil {
			return 0, nil, err
		}
		file, err := parser.ParseFile(c.files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return 0, nil, err
		}
		c.gather(file)
	}
	for known := -1; known != c.known; { // a parameter that is sent makes its function one more that takes SQL
		known = c.known
		c.reported, c.count = nil, 0
		for _, functions := range c.funcs {
			for _, function := range functions {
				c.inspect(function)
			}
		}
	}
	slices.Sort(c.reported)
	return c.count, slices.Compact(c.reported), nil
}

func (c *checker) gather(file *ast.File) {
	for _, declaration := range file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			c.funcs[declaration.Name.Name] = append(c.funcs[declaration.Name.Name], declaration)
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok && declaration.Tok == token.CONST {
					for _, name := range values.Names {
						c.consts[name.Name] = true
					}
				}
			}
		}
	}
}

// inspect looks at each call in a function.
func (c *checker) inspect(function *ast.FuncDecl) {
	if function.Body == nil || slices.Contains(c.Except, function.Name.Name) {
		return
	}
	ast.Inspect(function.Body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			for _, text := range c.texts(node) {
				c.count++
				c.origin(function, text, nil)
			}
		case *ast.KeyValueExpr: // what is put into a trusted field
			if key, ok := node.Key.(*ast.Ident); ok && slices.Contains(c.Fields, key.Name) {
				c.origin(function, node.Value, nil)
			}
		case *ast.AssignStmt:
			for i, left := range node.Lhs {
				if c.trusts(left) {
					c.origin(function, node.Rhs[min(i, len(node.Rhs)-1)], nil)
				}
			}
		}
		return true
	})
}

// texts are the arguments of a call that are sent.
func (c *checker) texts(call *ast.CallExpr) (texts []ast.Expr) {
	if place, foreign := sinks[called(call)]; foreign && len(call.Args) > place {
		texts = append(texts, call.Args[place])
	}
	for _, own := range c.sinks[called(call)] {
		switch {
		case !own.matches(call):
		case own.variadic && own.place == own.parameters-1:
			texts = append(texts, call.Args[own.place:]...)
		default:
			texts = append(texts, call.Args[own.place])
		}
	}
	return texts
}

// trusts reports whether an expression is a field that is trusted to hold SQL, or where a pointer
// to one leads.
func (c *checker) trusts(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isNamed(e.X, "text")
	case *ast.SelectorExpr:
		if slices.Contains(c.Fields, e.Sel.Name) {
			return true
		}
		if of, ok := e.X.(*ast.Ident); ok && slices.Contains(c.Packages, of.Name) {
			return true
		}
		inner, ok := e.X.(*ast.SelectorExpr)
		return ok && slices.Contains(c.Fields, inner.Sel.Name)
	}
	return false
}

// called is the name of what is called, without package or receiver.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func (c *checker) report(at ast.Node, what string) {
	c.reported = append(c.reported, fmt.Sprintf("%s: %s", c.files.Position(at.Pos()), what))
}

// origin follows an expression to where it comes from. seen are the variables on the way.
func (c *checker) origin(function *ast.FuncDecl, e ast.Expr, seen []string) { //nolint:cyclop,gocognit // a case for each kind of expression
	switch e := e.(type) {
	case *ast.BasicLit:
	case *ast.ParenExpr:
		c.origin(function, e.X, seen)
	case *ast.BinaryExpr:
		c.origin(function, e.X, seen)
		c.origin(function, e.Y, seen)
	case *ast.TypeAssertExpr:
		c.origin(function, e.X, seen)
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				element = pair.Value
			}
			c.origin(function, element, seen)
		}
	case *ast.IndexExpr: // a map of texts
		c.origin(function, e.X, seen)
	case *ast.StarExpr:
		if !c.trusts(e) {
			c.report(e, "it is not known where the pointer leads")
		}
	case *ast.SelectorExpr:
		if !c.trusts(e) {
			c.report(e, "field "+e.Sel.Name+" is not known to hold SQL")
		}
	case *ast.CallExpr:
		switch called(e) {
		case "string": // a conversion
			c.origin(function, e.Args[0], seen)
		case "ReplaceAll":
			for _, text := range e.Args {
				c.origin(function, text, seen)
			}
		case "Replace": // strings.NewReplacer(...).Replace(...)
			if made, ok := e.Fun.(*ast.SelectorExpr).X.(*ast.CallExpr); ok && called(made) == "NewReplacer" {
				for _, text := range append(slices.Clone(made.Args), e.Args...) {
					c.origin(function, text, seen)
				}
				return
			}
			c.result(e, seen)
		default:
			c.result(e, seen)
		}
	case *ast.Ident:
		if !c.consts[e.Name] && !slices.Contains(seen, e.Name) {
			c.variable(function, e, append(seen, e.Name))
		}
	default:
		c.report(e, fmt.Sprintf("%T cannot be followed", e))
	}
}

// result follows what a function of the package returns.
func (c *checker) result(call *ast.CallExpr, seen []string) {
	name := called(call)
	if slices.Contains(c.Functions, name) {
		return
	}
	functions := c.funcs[name]
	if len(functions) == 0 {
		c.report(call, "the result of "+name+" is not known to be SQL")
	}
	if slices.Contains(seen, name+"()") {
		return
	}
	for _, function := range functions {
		ast.Inspect(function.Body, func(node ast.Node) bool {
			if back, ok := node.(*ast.ReturnStmt); ok && len(back.Results) > 0 {
				c.origin(function, back.Results[0], append(seen, name+"()"))
			}
			_, inner := node.(*ast.FuncLit)
			return !inner
		})
	}
}

// parameter finds a parameter of a function, and makes the function one that takes SQL there.
func (c *checker) parameter(function *ast.FuncDecl, name *ast.Ident) (found bool) {
	place := 0
	taken := sink{}
	for _, field := range function.Type.Params.List {
		_, taken.variadic = field.Type.(*ast.Ellipsis)
		for _, parameter := range field.Names {
			if parameter.Name == name.Name {
				found, taken.place = true, place
			}
			place++
		}
	}
	taken.parameters = place
	if !found {
		return false
	}
	if ast.IsExported(function.Name.Name) && name.Name != "table" { // callers may be anywhere; a table's name is checked
		c.report(name, "whoever calls "+function.Name.Name+" chooses the SQL")
	}
	if known := c.sinks[function.Name.Name]; !slices.Contains(known, taken) {
		c.sinks[function.Name.Name] = append(known, taken)
		c.known++
	}
	return true
}

// variable follows whatever is assigned to a variable, or given to a parameter.
func (c *checker) variable(function *ast.FuncDecl, name *ast.Ident, seen []string) {
	found := c.parameter(function, name)
	ast.Inspect(function.Body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			for i, left := range node.Lhs {
				if element, ok := left.(*ast.IndexExpr); ok { // of a list of texts
					left = element.X
				}
				if !isNamed(left, name.Name) {
					continue
				}
				found = true
				c.origin(function, node.Rhs[min(i, len(node.Rhs)-1)], seen)
			}
		case *ast.ValueSpec:
			for i, left := range node.Names {
				if left.Name == name.Name && i < len(node.Values) {
					found = true
					c.origin(function, node.Values[i], seen)
				}
			}
		case *ast.RangeStmt:
			if isNamed(node.Value, name.Name) {
				found = true
				c.origin(function, node.X, seen)
			}
		}
		return true
	})
	if !found {
		c.report(name, "variable "+name.Name+" cannot be followed")
	}
}

func isNamed(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && ident.Name == name
}
