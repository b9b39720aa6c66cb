package config

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// maxOptions bounds the number of values, which aliases of aliases can multiply.
const maxOptions = 10_000

// readOptions turns the options of a broker type that is registered in Go into plain values.
func (r *reader) readOptions(f *field) Options {
	budget := maxOptions
	value := r.readAny(f, maxDepth, &budget)
	if budget < 0 {
		r.rejectf(f, "is too large or too deep: %d values in %d levels are the most", maxOptions, maxDepth)
	}
	options, ok := value.(map[string]any)
	if !ok && !f.bad && value != nil {
		r.rejectf(f, "must be a mapping of keys, but is %s", kind(f.value))
	}
	return options
}

func (r *reader) readAny(f *field, depth int, budget *int) any {
	if *budget--; *budget < 0 || depth == 0 {
		*budget = -1
		return nil
	}
	switch n := f.value.(type) {
	case *ast.NullNode:
		return nil
	case *ast.SequenceNode:
		values := make([]any, 0, len(n.Values))
		for i, node := range n.Values {
			item := &field{path: fmt.Sprintf("%s[%d]", f.path, i), at: positionOf(node)}
			if item.value = r.plain(node, item.path); item.value != nil {
				values = append(values, r.readAny(item, depth-1, budget))
			}
		}
		return values
	case *ast.MappingNode, *ast.MappingValueNode:
		entries := r.open(f.value, f.path, f.at)
		values := make(map[string]any, len(entries.fields))
		for _, entry := range entries.fields {
			if !namePattern.MatchString(entry.name) {
				entry.path = f.path + ".?"
			}
			if entries.get(entry.name) != nil {
				values[entry.name] = r.readAny(entry, depth-1, budget)
			}
		}
		return values
	}
	if !r.scalar(f) {
		return nil
	}
	return plainValue(f)
}

// plainValue gives a scalar the type that the YAML has. What contains a variable is a string.
func plainValue(f *field) any {
	switch f.value.Type() { //nolint:exhaustive // all others are texts
	case ast.IntegerType:
		if n, err := strconv.Atoi(f.text); err == nil && wholeNumber.MatchString(f.text) {
			return n
		}
	case ast.FloatType:
		if n, err := strconv.ParseFloat(f.text, 64); err == nil {
			return n
		}
	case ast.BoolType:
		return f.text == "true"
	}
	return f.text
}
