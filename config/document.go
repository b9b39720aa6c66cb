package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// maxBytes of a configuration file.
	maxBytes = 128 << 10
	// maxDepth of its collections.
	maxDepth = 100
)

// position counts from 1, in lines and characters.
type position struct{ line, column int }

func positionOf(node ast.Node) position {
	for {
		mapping, ok := node.(*ast.MappingNode)
		switch {
		case ok && !mapping.IsFlowStyle && len(mapping.Values) > 0: // its token is the first colon
			node = mapping.Values[0].Key
		default:
			if pair, ok := node.(*ast.MappingValueNode); ok {
				node = pair.Key
				continue
			}
			if token := node.GetToken(); token != nil && token.Position != nil {
				return position{token.Position.Line, token.Position.Column}
			}
			return position{1, 1}
		}
	}
}

// parseDocument returns the content of the only document; nil when a problem was reported.
func (r *reader) parseDocument(source []byte) ast.Node {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	source = bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n")) // the parser miscounts the lines of the other kind
	if at, flaw := rawFlaw(source, cmp.Or(r.what, "a configuration"), cmp.Or(r.most, maxBytes)); flaw != "" {
		r.problemf(at, "", "%s", flaw)
		return nil
	}
	file, err := parse(source)
	if err != nil {
		r.syntaxProblem(source, err)
		return nil
	}
	var content ast.Node
	for _, document := range file.Docs {
		_, directive := document.Body.(*ast.DirectiveNode)
		switch {
		case directive, document.Start == nil && document.Body == nil: // comments in front of "---"
		case content != nil:
			at := position{1, 1}
			if document.Start != nil {
				at = position{document.Start.Position.Line, document.Start.Position.Column}
			} else if document.Body != nil {
				at = positionOf(document.Body)
			}
			r.problemf(at, "", "a second document begins here: a file holds one configuration")
			return nil
		case document.Body == nil:
			content = ast.Null(document.Start)
		default:
			content = document.Body
		}
	}
	if content == nil || content.Type() == ast.NullType {
		r.problemf(position{1, 1}, "", "%s", cmp.Or(r.what, "the configuration")+" is empty")
		return nil
	}
	return content
}

// parse calls the YAML library. A panic there is an error about the file.
func parse(source []byte) (file *ast.File, err error) {
	defer func() {
		if recover() != nil { // what it says may quote the file
			err = errors.New("is not understood by the YAML parser")
		}
	}()
	return parser.ParseBytes(source, 0, parser.AllowDuplicateMapKey())
}

// rawFlaw finds what must not reach the parser: bytes that are no text, and nesting so deep that it
// would exhaust the stack.
func rawFlaw(source []byte, what string, most int) (position, string) {
	if len(source) > most {
		return position{1, 1}, fmt.Sprintf("the file has %d bytes: %s has at most %d", len(source), what, most)
	}
	depth, number := 0, 0
	for line := range bytes.Lines(source) {
		number++
		if listsIn(line) > maxDepth {
			return position{number, 1}, tooDeep
		}
		for column := 1; len(line) > 0; column++ {
			char, size := utf8.DecodeRune(line)
			switch {
			case char == utf8.RuneError && size == 1:
				return position{number, column}, "is not UTF-8 text"
			case char < ' ' && !strings.ContainsRune("\t\n", char), char == 0x7f:
				return position{number, column}, "a control character is not allowed here"
			}
			if depth = max(0, depth+nesting(char)); depth > maxDepth {
				return position{number, column}, tooDeep
			}
			line = line[size:]
		}
	}
	return position{}, ""
}

const tooDeep = "is nested too deeply"

// listsIn counts the lists that begin inside each other at the beginning of a line.
func listsIn(line []byte) int {
	beginning := line[:len(line)-len(bytes.TrimLeft(line, "- \t"))]
	return bytes.Count(beginning, []byte("- ")) + bytes.Count(beginning, []byte("-\t"))
}

// nesting is the depth that a character adds in flow style.
func nesting(char rune) int {
	switch char {
	case '[', '{':
		return 1
	case ']', '}':
		return -1
	default:
		return 0
	}
}

// quotation is a part of a parser's message that repeats the file.
var quotation = regexp.MustCompile(`:? *"(\\.|[^"\\])*"`)

func (r *reader) syntaxProblem(source []byte, err error) {
	at, message := position{1, 1}, err.Error()
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) {
		message = quotation.ReplaceAllString(syntax.Message, "")
		if token := syntax.Token; token != nil && token.Position != nil {
			at = position{max(1, token.Position.Line), max(1, token.Position.Column)}
		}
	}
	line := lineOf(source, at.line)
	indentation := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	switch {
	case strings.Contains(indentation, "\t"):
		message = "the line is indented with a tab: use spaces"
		at.column = 1 + strings.Index(indentation, "\t")
	case strings.Contains(line, "${"):
		message += `; "${...}" needs quotes between { } and [ ]`
	}
	r.problemf(at, "", "YAML syntax: %s", message)
}

func lineOf(source []byte, number int) string {
	for line := range bytes.Lines(source) {
		if number--; number == 0 {
			return strings.TrimRight(string(line), "\n")
		}
	}
	return ""
}
