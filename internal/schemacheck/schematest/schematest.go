// Package schematest shows that the check of a schema notices small changes of expressions.
package schematest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
)

// changes are what is done to one token of an expression.
var changes = map[string][]string{
	"<": {"<=", ">"}, ">": {">=", "<"}, "=": {"<>"}, "<=": {"<"}, ">=": {">"}, "<>": {"="}, "&": {"+"}, "+": {"-"},
	"and": {"OR"}, "or": {"AND"}, "is null": {"IS NOT NULL"}, "is not null": {"IS NULL"}, "not": {""}, "in": {"NOT IN"},
}

var (
	pieces = regexp.MustCompile(`(?i)'(?:[^']|'')*'|\bis\s+not\s+null\b|\bis\s+null\b|[<>]=|<>|[<>=&+]|\w+`)
	number = regexp.MustCompile(`^\d+$`)
)

// Mutants changes each token of each expression that is wanted, and asks whether the change is
// noticed. Some changes make no difference: harmless matches what they lead to.
func Mutants(t *testing.T, db *schemacheck.Database, want schemacheck.Facts, harmless string) {
	t.Helper()
	n := 0
	for i, object := range want {
		for j, property := range object.Properties {
			for _, mutant := range mutants(property) {
				live := append(schemacheck.Facts{}, want...)
				live[i].Properties = append([]schemacheck.Property{}, object.Properties...)
				live[i].Properties[j].Value = mutant
				differences, err := db.Differences(t.Context(), want, live)
				require.NoError(t, err)
				n++
				if len(differences) == 0 {
					assert.Regexp(t, harmless, mutant, object.Name)
					continue
				}
				assert.Len(t, differences, 1)
				assert.True(t, strings.HasPrefix(differences[0], fmt.Sprintf("%s: %s is %s, want ", object.Name, property.Name, mutant)), differences[0])
			}
		}
	}
	assert.Greater(t, n, 100)
}

func mutants(property schemacheck.Property) (texts []string) {
	switch property.Name {
	case schemacheck.CheckExpression, schemacheck.Predicate:
		texts = append(texts, "1 = 1", "1 = 0")
	case schemacheck.Generated, schemacheck.Expression, schemacheck.Default:
	default:
		return nil
	}
	text := property.Value
	for _, at := range pieces.FindAllStringIndex(text, -1) {
		piece := text[at[0]:at[1]]
		others := changes[strings.Join(strings.Fields(strings.ToLower(piece)), " ")]
		switch {
		case strings.HasPrefix(piece, "'"):
			others = []string{"'x" + piece[1:]}
		case number.MatchString(piece):
			others = []string{piece + "1", "1" + piece[1:] + "0"}
		}
		for _, other := range others {
			if other != piece {
				texts = append(texts, text[:at[0]]+other+text[at[1]:])
			}
		}
	}
	return texts
}
