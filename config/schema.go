package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// schemaURL is where editors find the schema of the newest version.
const schemaURL = "https://raw.githubusercontent.com/gorm-fanout/fanout/main/config/fanout.schema.json"

// Schema returns a JSON Schema (draft 7) of configurations for editors, with what [Reference] says of
// each key. It describes the settings of brokers of the types that [WithBrokerTypes] names; other
// options change nothing. It refuses nothing that [Load] accepts, and unknown keys, values of a wrong
// type and unknown words as Load does. What depends on several keys, on files or on variables, Load
// alone knows, and that a type of broker is probably misspelt.
func Schema(opts ...Option) []byte {
	r := &reader{}
	for _, opt := range opts {
		opt(r)
	}
	r.lookup = func(string) (string, bool) { return "", false }
	r.describes = new(shape)
	// A document that has the reader ask for every key; all that it misses is of no interest.
	document := bytes.NewBufferString("databases: {x: {}}\nconsumers: {x: {}}\nbrokers:\n  \"" + otherType + "\": {}\n")
	for _, kind := range r.types {
		fmt.Fprintf(document, "  %q: {type: %q}\n", kind.Name, kind.Name)
	}
	r.read(document.Bytes())

	comments := referenceComments()
	root := r.describes.schema(nil, comments.about)
	properties := root["properties"].(map[string]any) //nolint:forcetypeassert // the root is a mapping
	definitions := definitions()
	for _, section := range []string{"databases", "consumers"} {
		entry := r.describes.keys[section].entries["x"].schema([]string{section, "*"}, comments.about)
		properties[section] = named(entry, comments.about([]string{section}))
	}
	properties["brokers"] = named(r.describes.keys["brokers"].brokers(definitions, comments), comments.about([]string{"brokers"}))
	root["$schema"], root["$id"], root["definitions"] = "http://json-schema.org/draft-07/schema#", schemaURL, definitions
	root["title"] = "Configuration of Fanout"
	schema, err := json.MarshalIndent(root, "", "  ")
	if err != nil { // there is nothing in it that has no form in JSON
		panic(err)
	}
	return append(schema, '\n')
}

// named is a section whose keys are names of the user's.
func named(entry map[string]any, description string) map[string]any {
	return map[string]any{
		"type": []string{"object", "null"}, "description": description,
		"propertyNames": map[string]any{"pattern": namePattern.String()}, "additionalProperties": entry,
	}
}

// otherType is the broker of the document that has no type: no type has this name.
const otherType = "?"

// brokers is the schema of one broker. Each type has a definition of its own, with its keys and those
// that all brokers have; of a type that the program does not link only the latter are known.
func (s *shape) brokers(definitions map[string]any, comments comments) map[string]any {
	common := s.entries[otherType].schema([]string{"brokers", "*"}, comments.about)
	definitions["broker"] = common
	var types []string
	var alternatives []any
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		if name == otherType {
			continue
		}
		types = append(types, name)
		own := s.entries[name].schema([]string{"brokers", name}, comments.about)
		properties := own["properties"].(map[string]any) //nolint:forcetypeassert // an entry is a mapping
		for key := range s.entries[otherType].keys {
			properties[key] = refTo("broker/properties/" + key)
		}
		definition := "type-" + name // which no other definition is called
		definitions[definition] = own
		alternatives = append(alternatives, map[string]any{"if": ofType(map[string]any{"const": name}), "then": refTo(definition)})
	}
	if len(types) == 0 {
		return refTo("broker")
	}
	alternatives = append(alternatives, map[string]any{"if": ofType(map[string]any{"enum": types}), "else": refTo("broker")})
	common["properties"].(map[string]any)["type"] = map[string]any{ //nolint:forcetypeassert // as above
		"description": comments.about([]string{"brokers", "*", "type"}),
		"anyOf":       []any{map[string]any{"enum": types}, map[string]any{"type": "string", "pattern": namePattern.String()}, refTo(variable)},
	}
	return map[string]any{"type": "object", "required": []string{"type"}, "allOf": alternatives}
}

func ofType(kind map[string]any) map[string]any {
	return map[string]any{"properties": map[string]any{"type": kind}, "required": []string{"type"}}
}

// comments are what the reference says behind each key, by the path of the key with dots, in which
// "*" stands for a name of the user's. Keys of brokers are there by the type of the broker, too.
type comments map[string]string

// commented is a line of the reference: a key, which may be commented out, its value and the words
// about it.
var commented = regexp.MustCompile(`^( *)(?:# ( *))?"?([A-Za-z0-9_-]+)"?:(?: ([^#]*?))? *(?:# (.*))?$`)

func referenceComments() comments {
	said := comments{}
	var path []string
	var indents []int
	kind := ""
	for line := range strings.Lines(reference) {
		match := commented.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if match == nil {
			continue
		}
		indent := len(match[1]) + len(match[2])
		for len(indents) > 0 && indents[len(indents)-1] >= indent {
			indents, path = indents[:len(indents)-1], path[:len(path)-1]
		}
		indents, path = append(indents, indent), append(path, match[3])
		if len(path) == 3 && match[3] == "type" {
			kind = match[4]
		}
		if match[5] != "" {
			said.note(path, kind, match[5])
		}
	}
	return said
}

// note keeps the words about the key of a path, in the section of a broker of a type.
func (c comments) note(path []string, kind, text string) {
	if !slices.Contains([]string{"brokers", "databases", "consumers"}, path[0]) || len(path) == 1 {
		c.add(path, text)
		return
	}
	if len(path) == 2 { // about the example alone
		return
	}
	if path[0] == "brokers" {
		c.add(slices.Concat([]string{"brokers", kind}, path[2:]), text)
	}
	c.add(slices.Concat([]string{path[0], "*"}, path[2:]), text)
}

// add keeps the first words about a key.
func (c comments) add(path []string, text string) {
	if at := strings.Join(path, "."); c[at] == "" {
		c[at] = text
	}
}

// about finds the words about a key: of a broker's those of its type, of any type, or of the setting
// of the outbox that it overrides.
func (c comments) about(path []string) string {
	if text := c[strings.Join(path, ".")]; text != "" || len(path) < 3 || path[0] != "brokers" {
		return text
	}
	key := strings.Join(path[2:], ".")
	if text := c["brokers.*."+key]; text != "" {
		return text
	}
	if c["outbox."+key] != "" {
		return "overrides outbox." + key + ": " + c["outbox."+key]
	}
	return ""
}
