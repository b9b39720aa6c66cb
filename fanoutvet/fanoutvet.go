// Package fanoutvet finds events that are raised on copies of aggregates, where nothing emits them.
// Its analyzer serves go vet, the command cmd/fanoutvet, and every other program that runs
// analyzers, such as gopls or a golangci-lint that is built with it.
//
// It is a module of its own, so that the graph of an application that uses Fanout does not hold the
// libraries of Go's tools.
package fanoutvet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

const doc = `find events that are raised on copies of aggregates, and so lost

A type that embeds uow.Aggregate of github.com/gorm-fanout/fanout keeps the events that it
raises until a transaction that wrote it commits. What is raised on a copy stays with the copy.
This analyzer reports a method that raises, uow.Aggregate.Raise or one that calls it, on

  - the variable of a range loop:    for _, o := range orders { o.Pay() }
  - a value receiver:                func (o Order) Pay() { o.Raise(OrderPaid{o.ID}) }
  - a parameter passed by value:     func pay(o Order) { o.Pay() }
  - another local copy:              o := orders[i]; o.Pay()

unless the copy goes anywhere from which it can be saved: its address is taken, or it is passed
on, assigned, stored, sent or returned. A copy that is given a list of its own by
o.Aggregate = uow.Aggregate{} is meant to be one, and is not reported either, nor is one whose
events uow.Discard drops. Nor are copies that the code looks at after it has called a method that
raises, where that is likely to be all that it wants: in tests, and in calculations with a copy.

Copies of an aggregate that has raised something, or that GORM has loaded on a handle with the
plugin, share its events. Where the function shows that GORM has loaded it, a copy is reported only
if it is changed, too: then its event is sent, and its change is lost.

What comes from a cache, or from singleflight, is not looked into: there requests share the events of
an aggregate, so give each copy a list of its own, as above, where it is taken out.`

// Analyzer reports events that are raised on copies.
var Analyzer = &analysis.Analyzer{
	Name:      "fanoutvet",
	Doc:       doc,
	URL:       "https://github.com/gorm-fanout/fanout/blob/main/docs/capture.md#events-on-copies",
	Requires:  []*analysis.Analyzer{inspect.Analyzer},
	FactTypes: []analysis.Fact{new(treatments)},
	Run:       run,
}

func run(pass *analysis.Pass) (any, error) {
	inspect, ok := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	if !ok { // the driver's promise
		return nil, nil //nolint:nilnil // an analyzer without a result returns none
	}
	u := &unit{
		pass: pass, info: pass.TypesInfo, root: inspect.Root(),
		access:  make(accesses),
		uses:    make(map[*types.Var][]inspector.Cursor),
		treated: make(map[*types.Func]*treatments),
	}
	u.index()
	if len(u.uses) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	u.learn()
	for _, c := range u.copies() {
		u.judge(c)
	}
	return nil, nil //nolint:nilnil // as above
}

// A unit is one package under analysis.
type unit struct {
	pass *analysis.Pass
	info *types.Info
	root inspector.Cursor

	access  accesses
	uses    map[*types.Var][]inspector.Cursor // where variables that give access to an aggregate are used, in the order of the text
	treated map[*types.Func]*treatments       // what functions of this package do with the aggregates that they are given
}

// index notes the uses of variables.
func (u *unit) index() {
	for cursor := range u.root.Preorder((*ast.Ident)(nil)) {
		id, ok := cursor.Node().(*ast.Ident)
		if !ok {
			continue
		}
		v, ok := u.info.Uses[id].(*types.Var)
		if ok && !v.IsField() && u.access.of(v.Type()) != noAccess {
			u.uses[v] = append(u.uses[v], cursor)
		}
	}
	for _, uses := range u.uses { // files come in the order of their names, which is the order of their positions, too
		slices.SortStableFunc(uses, func(a, b inspector.Cursor) int { return int(a.Node().Pos() - b.Node().Pos()) })
	}
}
