package schemacheck

import (
	"fmt"
	"slices"
	"strings"
)

// None is the value of a property that an object does not have.
const None = "none"

// Differences lists, for people, what of the wanted facts is missing in a live schema or different there. Objects that the
// live schema has beyond them are its owner's business; a property that a wanted object should not have, such as a default,
// is a difference. Of a table that is missing nothing else is said. Names are the same whatever their case.
func Differences(want, live Facts) []string {
	there := make(map[string]Object, len(live))
	for _, object := range live {
		there[strings.ToLower(object.Name)] = object
	}
	var (
		differences []string
		skip        bool // the table that these objects belong to is missing
	)
	for _, object := range want {
		isTable := strings.HasPrefix(object.Name, Table)
		if skip && !isTable {
			continue
		}
		found, ok := there[strings.ToLower(object.Name)]
		skip = isTable && !ok
		if !ok {
			differences = append(differences, object.Name+": missing")
			continue
		}
		differences = append(differences, object.differences(found)...)
	}
	return differences
}

func (o Object) differences(live Object) []string {
	names := make([]string, 0, len(o.Properties))
	for _, property := range slices.Concat(o.Properties, live.Properties) {
		if !slices.Contains(names, property.Name) {
			names = append(names, property.Name)
		}
	}
	var differences []string
	for _, name := range names {
		is, want := live.Value(name), o.Value(name)
		if is != Unknown && Fold(is) != Fold(want) {
			differences = append(differences, fmt.Sprintf("%s: %s is %s, want %s", o.Name, name, is, want))
		}
	}
	return differences
}

// Value of a property.
func (o Object) Value(property string) string {
	for _, p := range o.Properties {
		if p.Name == property {
			return p.Value
		}
	}
	return None
}
