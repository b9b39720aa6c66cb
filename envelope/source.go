package envelope

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// Source says which aggregate instance raised an event. The zero Source is that
// of an event without an aggregate.
type Source struct {
	// Aggregate is the name of the aggregate's Go type without its package, such
	// as "Order". Streams use it in snake_case. "" means: no aggregate.
	Aggregate string

	// ID is the key of the instance, as text; the parts of a composite key are
	// joined with ",". Where a comma or a backslash stands in one of them, each of
	// these has a backslash in front of it. Required with Aggregate, refused without.
	ID string

	// Version of the aggregate, which has to be above that of its events before: 0
	// where the model has none, or it has not moved. With Sequence it makes
	// domain.sequence_id, which is left out where it is 0.
	Version int64

	// ExpectedVersion is the version that the aggregate was loaded with
	// (domain.expected_version, internal form only); nil where it has none.
	ExpectedVersion *int64

	// Sequence counts the aggregate's events within one transaction.
	Sequence int
}

// streams returns the category (where messages go) and the stream of the
// instance; both are the context itself for an event without an aggregate.
func (s *Source) streams(context string) (category, stream string) {
	if s.Aggregate == "" {
		return context, context
	}
	// One allocation for both: the category is the front of the stream.
	aggregate := snakeCase(s.Aggregate)
	stream = context + "::" + aggregate + "-" + s.ID
	return stream[:len(context)+len("::")+len(aggregate)], stream
}

// sequenceID is empty where it would not ascend: consumers drop what is not above
// the last one that they have seen. A scheduled event arrives after later ones of
// its key.
func sequenceID(s *Source, notBefore time.Time) string {
	if s.Version <= 0 || !notBefore.IsZero() {
		return ""
	}
	id := strconv.AppendInt(make([]byte, 0, 24), s.Version, 10)
	id = append(id, '.')
	return string(strconv.AppendInt(id, int64(s.Sequence), 10))
}

// check says what is wrong with the source, nil if nothing is.
func (s *Source) check() *flaw {
	const nameRemedy = "name the aggregate after its Go type"
	if s.Aggregate == "" {
		if s.ID != "" {
			return &flaw{errors.New("the source has an id but no aggregate"), "set Source.Aggregate, or leave both empty"}
		}
		return nil
	}
	if err := boundFlaw(s.Aggregate, limits.MaxAggregateBytes); err != nil {
		return &flaw{fmt.Errorf("the aggregate name %w", err), nameRemedy}
	}
	if !strings.ContainsFunc(s.Aggregate, isWordRune) {
		return &flaw{fmt.Errorf("the aggregate name %q has no letters or digits", s.Aggregate), nameRemedy}
	}
	if s.ID == "" {
		return &flaw{
			fmt.Errorf("the %s that raised it has no id", s.Aggregate),
			"save the aggregate, or assign its key, before the transaction commits",
		}
	}
	if err := boundFlaw(s.ID, limits.MaxAggregateBytes); err != nil {
		return &flaw{
			fmt.Errorf("the id of its %s: %w", s.Aggregate, err),
			"give the key as text, e.g. a UUID in its 36-character form",
		}
	}
	return nil
}

// Validate says what is wrong with a source that is made by hand, and what to do
// about it; nil if nothing is. A zero Source, that of no aggregate, is valid.
func (s *Source) Validate() error {
	if flaw := s.check(); flaw != nil {
		return fmt.Errorf("envelope: %w: %s", flaw.cause, flaw.remedy)
	}
	return nil
}

// snakeCase turns a Go identifier into snake_case, the form of aggregates in
// streams: OrderLine is order_line, HTTPRequest http_request, OAuth2Token
// oauth2_token, OrderIDs order_ids. A generic name is written out:
// Basket[example.com/shop.Item] is basket_item. Whatever is no letter and no
// digit becomes one underscore, so the result holds none of the separators of a
// stream. snakeCase of a snake_case name is that name.
func snakeCase(s string) string {
	if isSnakeCase(s) {
		return s
	}
	runes := []rune(flattenTypeArgs(cleanReflectName(s), "_"))
	var out strings.Builder
	out.Grow(len(runes) + 4)
	gap := false // a separator is due before the next letter
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		if !isWordRune(r) {
			gap = true
			continue
		}
		if out.Len() > 0 && (gap || startsWord(runes, i)) {
			out.WriteByte('_')
		}
		gap = false
		out.WriteRune(unicode.ToLower(r))
		for skip := mixedCaseWord(runes, i); skip > 1; skip-- {
			i++
			out.WriteRune(unicode.ToLower(runes[i]))
		}
	}
	return out.String()
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// isCapital: a capital that has a small letter, which a few Greek ones have not.
func isCapital(r rune) bool { return unicode.IsUpper(r) && unicode.ToLower(r) != r }

func isSnakeCase(s string) bool {
	for word := range strings.SplitSeq(s, "_") {
		if word == "" || !containsOnly(word, isLowerASCII, isDigit) {
			return false
		}
	}
	return true
}

// startsWord: a capital after a small letter or digit (order|Line, oauth2|Token),
// or the last capital of a run that goes on in small letters (HTTP|Request); the
// plural s of an abbreviation (IDs) starts nothing.
func startsWord(runes []rune, i int) bool {
	if !isCapital(runes[i]) || i == 0 {
		return false
	}
	if !isCapital(runes[i-1]) {
		return true
	}
	if i+1 == len(runes) || !unicode.IsLower(runes[i+1]) {
		return false
	}
	plural := runes[i+1] == 's' && (i+2 == len(runes) || !unicode.IsLower(runes[i+2]))
	return !plural
}

// mixedCaseWords are single words whose capitals would otherwise split them.
var mixedCaseWords = []string{"OAuth", "GraphQL", "IPv4", "IPv6"}

// mixedCaseWord returns the length of the mixed-case word that begins at i, 0 if
// there is none. "OAuthority" after another capital, or going on in small
// letters, is none.
func mixedCaseWord(runes []rune, i int) int {
	if i > 0 && isCapital(runes[i-1]) {
		return 0
	}
	for _, word := range mixedCaseWords {
		end := i + len(word)
		if end <= len(runes) && runes[i] == rune(word[0]) && string(runes[i:end]) == word &&
			(end == len(runes) || !unicode.IsLower(runes[end])) {
			return len(word)
		}
	}
	return 0
}
