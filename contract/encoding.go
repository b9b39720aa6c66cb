package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/jsonschema"
	"github.com/gorm-fanout/fanout/internal/strictjson"
)

// layout is what the bytes of an encoding hold: the parts of each message or record, by what a reader knows them by on the wire,
// which of Protobuf is the number.
type layout map[string]map[string]part

// part is a field, or the values of an enum. Its type is a promise, its name is not.
type part struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// described is what an encoding says of a type; see envelope.Encoding.
type described struct {
	schema *jsonschema.Schema // of its JSON
	layout layout
}

func describeEncoding(encoding envelope.Encoding) (described, error) {
	if encoding.Describe == nil {
		return described{schema: &jsonschema.Schema{}}, nil
	}
	text, err := encoding.Describe()
	if err != nil {
		return described{}, err
	}
	var read struct {
		JSON   json.RawMessage `json:"json"`
		Layout layout          `json:"layout"`
	}
	if err := strictjson.UnmarshalKnown(text, &read); err != nil {
		return described{}, fmt.Errorf("what its encoding describes: %w", err)
	}
	s, err := jsonschema.Parse(read.JSON)
	return described{s, read.Layout}, err
}

// changes reports how a later layout differs. Messages that only one of the two has are those of fields that are reported.
func (l layout) changes(later layout, path string, report jsonschema.Report) {
	for _, record := range slices.Sorted(maps.Keys(l)) {
		before, after := l[record], later[record]
		if after == nil {
			continue
		}
		at := func(key string, p part) string { return path + ": " + record + ": " + key + " (" + p.Name + ")" }
		for _, key := range slices.Sorted(maps.Keys(before)) {
			was := before[key]
			is, still := after[key]
			switch {
			case !still:
				report(true, at(key, was), "removed")
			case is.Type != was.Type:
				report(true, at(key, was), "type changed from "+was.Type+" to "+is.Type)
			}
			if still && is.Name != was.Name {
				report(false, at(key, was), "renamed to "+is.Name+", which readers of the encoding do not see")
			}
		}
		for _, key := range slices.Sorted(maps.Keys(after)) {
			if _, known := before[key]; !known {
				report(false, at(key, after[key]), "added")
			}
		}
	}
}

// encodedDescription is for readers of AsyncAPI.
const encodedDescription = "The bytes are those of the content type, and x-layout says what they hold; the schema is that of the same data as JSON."
