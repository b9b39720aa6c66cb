package schemacheck

import (
	"fmt"
	"slices"
	"strings"
)

// Differences lists, for people, which wanted facts a live schema lacks or has otherwise. Further
// objects of the live schema are its owner's business; a property that a wanted object should not
// have, such as a default, is a difference. Of a missing table it says nothing else. It ignores the
// case of names. Of an expression it compares only whether there is one, since a server rewrites
// them: see [TextDifferences].
func Differences(want, live Facts) []string { return differences(want, live, false) }

// TextDifferences compares expressions, too, letter by letter: both sides must be in the words of the
// same server.
func TextDifferences(want, live Facts) []string { return differences(want, live, true) }

func differences(want, live Facts, texts bool) (found []string) {
	there := make(map[string]Object, len(live))
	for _, object := range live {
		there[strings.ToLower(object.Name)] = object
	}
	tableExists := false
	for _, object := range want {
		live, exists := there[strings.ToLower(object.Name)]
		isTable := strings.HasPrefix(object.Name, Table)
		if isTable {
			tableExists = exists
		}
		switch {
		case exists:
			found = append(found, object.differences(live, texts)...)
		case isTable || tableExists:
			found = append(found, object.Name+": missing")
		}
	}
	return found
}

func isExpression(property string) bool {
	return slices.Contains([]string{Default, Generated, Predicate, Expression, CheckExpression}, property)
}

func (o Object) differences(live Object, texts bool) (found []string) {
	names := make([]string, 0, len(o.Properties))
	for _, property := range slices.Concat(o.Properties, live.Properties) {
		if !slices.Contains(names, property.Name) {
			names = append(names, property.Name)
		}
	}
	for _, name := range names {
		is, want := live.Value(name), o.Value(name)
		switch {
		case is == Unknown, is == want:
		case isExpression(name) && is != None && want != None && !texts:
		case isExpression(name) || !strings.EqualFold(is, want):
			found = append(found, fmt.Sprintf("%s: %s is %s, want %s", o.Name, name, is, want))
		}
	}
	return found
}
