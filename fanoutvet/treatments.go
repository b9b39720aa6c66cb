package fanoutvet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// A treatment is what a function does with an aggregate that it is given: one of the first two, and
// of the others any number with keeps.
type treatment uint8

const (
	// passesOn: others may have the aggregate afterwards. It is also what is said of a function
	// that has not been reviewed.
	passesOn treatment = 0
	keeps    treatment = 1 << (iota - 1)
	changes            // it sets fields
	raisesOn
)

func (t treatment) String() string {
	switch t {
	case passesOn:
		return "passes on"
	case keeps | changes:
		return "changes"
	case keeps | raisesOn:
		return "raises"
	case keeps | changes | raisesOn:
		return "changes and raises"
	default:
		return "keeps"
	}
}

// treatments is the fact about a function: what it does with its receiver, if it has one, and with
// its parameters, in their order.
type treatments struct{ Slots []treatment }

// AFact makes treatments a fact, which packages that import the function's get to know.
func (*treatments) AFact() {}

func (t *treatments) String() string {
	words := make([]string, len(t.Slots))
	for i, slot := range t.Slots {
		words[i] = slot.String()
	}
	return strings.Join(words, ", ")
}

// learn finds out what the functions of this package do with what they are given, and tells the
// packages that import it. Functions call each other, so it goes on from "keeps everything" until
// nothing changes; what is known of a function only ever gets worse.
func (u *unit) learn() {
	var order []*types.Func
	for cursor := range u.root.Preorder((*ast.FuncDecl)(nil)) {
		decl, ok := cursor.Node().(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			continue
		}
		fn, ok := u.info.Defs[decl.Name].(*types.Func)
		if !ok {
			continue
		}
		if known := u.hopes(fn); known != nil {
			u.treated[fn] = known
			order = append(order, fn)
		}
	}
	for changed := true; changed; {
		changed = false
		for _, fn := range order {
			known := u.treated[fn]
			for i, v := range slots(fn) {
				if known.Slots[i] == passesOn {
					continue
				}
				if found := u.treatmentOf(v); found != known.Slots[i] {
					known.Slots[i] = found
					changed = true
				}
			}
		}
	}
	for _, fn := range order {
		if known := u.treated[fn]; slices.ContainsFunc(known.Slots, func(t treatment) bool { return t != passesOn }) {
			u.pass.ExportObjectFact(fn, known)
		}
	}
}

// hopes is what learn begins with: nil for a function that is given no aggregate.
func (u *unit) hopes(fn *types.Func) *treatments {
	vars, given := slots(fn), false
	known := &treatments{Slots: make([]treatment, len(vars))}
	for i, v := range vars {
		if how := u.access.of(v.Type()); how == byValue || how == byPointer || how == byInterface {
			known.Slots[i], given = keeps, true
		}
	}
	if !given {
		return nil
	}
	return known
}

// slots are the receiver, if there is one, and the parameters of a function.
func slots(fn *types.Func) (vars []*types.Var) {
	signature := fn.Signature()
	if recv := signature.Recv(); recv != nil {
		vars = append(vars, recv)
	}
	for param := range signature.Params().Variables() {
		vars = append(vars, param)
	}
	return vars
}

// treatmentOf tells what is done with a parameter.
func (u *unit) treatmentOf(v *types.Var) treatment {
	found := keeps
	for _, id := range u.uses[v] {
		use := u.use(id)
		switch use.effect {
		case leaks, replaces:
			return passesOn
		case raises:
			found |= raisesOn
		case writes:
			found |= changes
		case reads:
		}
		if use.changes {
			found |= changes
		}
	}
	return found
}

// treatment is what a function, of this package or of another, does with what stands in one of its
// slots.
func (u *unit) treatment(fn *types.Func, slot int) treatment {
	fn = fn.Origin()
	known := u.treated[fn]
	if known == nil {
		known = new(treatments)
		if fn.Pkg() == u.pass.Pkg || !u.pass.ImportObjectFact(fn, known) {
			return passesOn
		}
		u.treated[fn] = known
	}
	if slot >= len(known.Slots) {
		return passesOn
	}
	return known.Slots[slot]
}
