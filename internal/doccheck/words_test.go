package doccheck_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// words are what a log line looks like in a page: plain words, some of them joined by punctuation.
var words = regexp.MustCompile(`^[a-z][a-z0-9'-]*([,:]? [a-z0-9'()-]+)+$`)

// metric is the name of an instrument or of an attribute.
var metric = regexp.MustCompile(`^(fanout|messaging)\.[a-z_.]+$`)

// exported is a metric as Prometheus spells it, with the unit and kind that the exporter adds.
var exported = regexp.MustCompile(`^(fanout_(?:outbox|inbox)_[a-z_]+?)(_seconds|_bytes)?(_total|_bucket|_count|_sum)?$`)

// others are the words of other programs: commands, and settings with their values.
var others = regexp.MustCompile(`^((fanout|messages|make|go|gcloud|nats|docker|atlas|openssl|kafka-consumer-groups|(no-)?appendfsync(-on-rewrite)?) |[a-z-]+: \S+$)`)

// A log line or a metric that a page quotes is one that the source writes: who is on call looks for
// exactly that.
func TestQuotedWords(t *testing.T) {
	t.Parallel()
	written := literals(t)
	dotted := map[string]bool{}
	for text := range written {
		if metric.MatchString(text) {
			dotted[strings.ReplaceAll(text, ".", "_")] = true
		}
	}
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for n, line := range strings.Split(prose(string(text)), "\n") {
			for _, span := range spans(line) {
				if name := exported.FindStringSubmatch(span); name != nil {
					assert.True(t, dotted[name[1]], "%s:%d: %q: no such metric", page, n+1, span)
				}
				if metric.MatchString(span) || words.MatchString(span) && !others.MatchString(span) {
					assert.True(t, written[span], "%s:%d: %q: nothing in the source writes that", page, n+1, span)
				}
			}
		}
	}
}

// pages are what users read, but for the CHANGELOG: that speaks of what was as well.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{root + "README.md", root + "CONTRIBUTING.md"}
	for _, folder := range []string{"docs/", "docs/howto/"} {
		there, err := filepath.Glob(root + folder + "*.md")
		require.NoError(t, err)
		require.NotEmpty(t, there)
		found = append(found, there...)
	}
	return found
}

// prose is a page without its blocks of code, line for line.
func prose(page string) string {
	lines, fenced := strings.Split(page, "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return strings.Join(lines, "\n")
}

// literals are the texts of the source, and those that are put together of pieces.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, file := range source(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			if x, ok := n.(ast.Expr); ok {
				if text, ok := literal(x); ok {
					found[text] = true
				}
			}
			return true
		})
	}
	return found
}
