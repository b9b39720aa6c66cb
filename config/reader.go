package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// reader walks one document and collects what is wrong with it.
type reader struct {
	file     string
	lookup   func(string) (string, bool)
	what     string         // the document is; "": a configuration
	most     int            // bytes that it may have; 0: maxBytes
	hint     string         // what is added to a problem with a variable
	types    []adapter.Type // whose adapters are linked
	anchors  map[string]ast.Node
	problems []Problem
	warnings []Problem
	unlinked []Problem // warnings, or problems where there are others: the type may be misspelt all the same

	describes *shape   // what the document may be; nil unless that is asked for
	unsetIn   []string // sections that may name variables that are not set
}

func (r *reader) problemf(at position, path, format string, args ...any) {
	r.problems = append(r.problems, r.newProblem(at, path, format, args))
}

func (r *reader) warnf(at position, path, format string, args ...any) {
	r.warnings = append(r.warnings, r.newProblem(at, path, format, args))
}

func (r *reader) newProblem(at position, path, format string, args []any) Problem {
	return Problem{File: r.file, Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...)}
}

// collectAnchors notes what the aliases of the document stand for.
func (r *reader) collectAnchors(root ast.Node) {
	r.anchors = map[string]ast.Node{}
	ast.Walk(visitor(func(node ast.Node) {
		if anchor, ok := node.(*ast.AnchorNode); ok {
			name := anchor.Name.GetToken().Value
			if _, again := r.anchors[name]; again {
				r.problemf(positionOf(node), "", "an anchor (&) is defined twice: give each a name of its own")
				return
			}
			r.anchors[name] = anchor.Value
		}
	}), root)
}

type visitor func(ast.Node)

// Visit implements ast.Visitor.
func (v visitor) Visit(node ast.Node) ast.Visitor {
	v(node)
	return v
}

// plain looks through anchors and aliases. It is nil when a problem was reported.
func (r *reader) plain(node ast.Node, path string) ast.Node {
	for range maxDepth {
		switch n := node.(type) {
		case *ast.AnchorNode:
			node = n.Value
		case *ast.AliasNode:
			target, ok := r.anchors[n.Value.GetToken().Value]
			if !ok {
				r.problemf(positionOf(n), path, "no anchor (&) has this name; quote a text that begins with *")
				return nil
			}
			node = target
		case nil: // an anchor on nothing
			return ast.Null(nil)
		case *ast.TagNode:
			r.problemf(positionOf(n), path, "tags (!) are not supported: write the value without one")
			return nil
		default:
			return node
		}
	}
	r.problemf(positionOf(node), path, "an alias (*) stands for itself")
	return nil
}

// kind names a node's type in messages.
func kind(node ast.Node) string {
	switch node.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	case ast.SequenceType:
		return "a list"
	case ast.StringType, ast.LiteralType:
		return "a text"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.BoolType:
		return "true or false"
	case ast.NullType:
		return "empty"
	default:
		return "something else"
	}
}

// harmless is what a message may repeat: short, and nothing that could be a connection string.
var harmless = regexp.MustCompile(`^[-A-Za-z0-9_.:*?^$+,{}\[\] ]{1,48}$`)

// password is what passwords look like that were typed behind the wrong key: one word with
// letters and digits, or with a sign that no name has. A word of letters alone could be one as well, and
// is mostly a name that was mistyped.
var password = regexp.MustCompile(`^\w*(\d\w*[A-Za-z]|[A-Za-z]\w*\d)\w*$|^[^{}*. ]*[?^$+][^{}*. ]*$`)

// quantity is a number, a duration or a size.
var quantity = regexp.MustCompile(`^[-+]?\d+[\d_.]*([a-zA-Z]{1,3}\d*){0,3}$`)

// shown quotes a text of the file, unless it could be a secret in the wrong place.
func shown(source string) string {
	if password.MatchString(source) && !quantity.MatchString(source) {
		return notShown
	}
	return shownName(source)
}

const notShown = "(not shown: it may be a secret)"

// shownName is shown for names of brokers, which may have letters and digits.
func shownName(source string) string {
	switch {
	case source == "":
		return "an empty text"
	case !harmless.MatchString(source):
		return notShown
	default:
		return strconv.Quote(source)
	}
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }
