package doccheck_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// link is a link of Markdown to a file of the repository, or to a heading.
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// heading is one, and dropped is what its name leaves out.
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// named is an anchor that a page gives itself, and quoted is code within a line.
	named  = regexp.MustCompile(`<a id="([^"]+)">`)
	quoted = regexp.MustCompile("`[^`]*`")

	dropped = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// knownAnchors keeps the anchors of each page: many links lead to one page.
var knownAnchors = map[string]map[string]bool{}

// anchors returns the names that GitHub gives to the headings of a page.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	if known := knownAnchors[page]; known != nil {
		return known
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(prose(string(text)), -1) {
		title := link.ReplaceAllString(match[1], "]")
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	for _, match := range named.FindAllStringSubmatch(string(text), -1) {
		found[match[1]] = true
	}
	knownAnchors[page] = found
	return found
}

// Links lead to a file or folder that is there, and to a heading that it has.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for n, line := range strings.Split(prose(string(text)), "\n") {
			for _, match := range link.FindAllStringSubmatch(quoted.ReplaceAllString(line, "code"), -1) {
				path, anchor, _ := strings.Cut(match[1], "#")
				if strings.Contains(path, "://") {
					continue
				}
				target := page
				if path != "" {
					target = filepath.Join(filepath.Dir(page), path)
				}
				if _, err := os.Stat(target); !assert.NoError(t, err, "%s:%d", page, n+1) || anchor == "" {
					continue
				}
				assert.True(t, anchors(t, target)[anchor], "%s:%d: %s has no heading #%s", page, n+1, target, anchor)
			}
		}
	}
}

// pages are what users read, without the CHANGELOG, which speaks of the past, too.
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
