package schemacheck

import (
	"fmt"
	"slices"
	"strings"
)

// None is the value of a property that an object does not have.
const None = "none"

// Differences lists, for people, what of the wanted facts is missing in a live schema or different
// there. Objects that the live schema has beyond them are its owner's business; a property that a
// wanted object should not have, such as a default, is a difference. Of a table that is missing
// nothing else is said. Names are the same whatever their case.
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

// Forget makes properties of these names Unknown in the live facts where they differ from the
// wanted ones but are there on both sides: they are texts of a database that promises no wording.
func Forget(want, live Facts, properties ...string) Facts {
	live = slices.Clone(live)
	for i, object := range live {
		wanted := want.Find(object.Name)
		live[i].Properties = slices.Clone(object.Properties)
		for j, p := range live[i].Properties {
			if slices.Contains(properties, p.Name) && wanted.Value(p.Name) != None {
				live[i].Properties[j].Value = Unknown
			}
		}
	}
	return live
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
