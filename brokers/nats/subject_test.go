package nats_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers/nats"
)

func TestSubjects(t *testing.T) {
	t.Parallel()
	for destination, want := range map[string]string{
		"ordering::order":           "ordering.order",
		"order":                     "order",
		"a::b::c-d_e":               "a.b.c-d_e",
		"a.b":                       "a%2Eb",
		"a:b":                       "a%3Ab",
		"a::::b":                    "a.%3A%3Ab",
		"::a":                       "%3A%3Aa",
		"a::":                       "a%3A%3A",
		"a:::b":                     "a.%3Ab",
		"*":                         "%2A",
		"a >":                       "a%20%3E",
		"ü":                         "%C3%BC",
		"100%":                      "100%25",
		"$JS::API::STREAM::NAMES":   "%24JS.API.STREAM.NAMES",
		strings.Repeat("a", 230):    strings.Repeat("a", 230),
		"a\r\nPUB b 1\r\nx::\x00\t": "a%0D%0APUB%20b%201%0D%0Ax.%00%09",
	} {
		got, err := nats.SubjectOf("events.", destination)
		require.NoError(t, err)
		assert.Equal(t, "events."+want, got, "%q", destination)
	}
	for _, destination := range []string{"", strings.Repeat("a", 241), strings.Repeat("ü", 81), strings.Repeat("a", 1<<20)} {
		_, err := nats.SubjectOf("", destination)
		assert.Error(t, err)
	}
}

// TestSubjectsAreInjective: a subject leads back to its destination, and is one that a stream may
// have.
func TestSubjectsAreInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		checkSubject(t, rapid.OneOf(rapid.StringMatching(`[a:.%*> _+]{0,12}`), rapid.String()).Draw(t, "destination"))
	})
}

func checkSubject(t require.TestingT, destination string) {
	subject, err := nats.SubjectOf("", destination)
	if err != nil {
		require.True(t, destination == "" || len(destination) > 80, "%q: %v", destination, err)
		return
	}
	require.Regexp(t, `^[A-Za-z0-9_%-]+(\.[A-Za-z0-9_%-]+)*$`, subject)
	require.LessOrEqual(t, len(subject), 240)
	back, err := url.PathUnescape(strings.ReplaceAll(subject, ".", "::"))
	require.NoError(t, err)
	require.Equal(t, destination, back)
}
