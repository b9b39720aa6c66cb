package doccheck_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// worst are phrases that read as translated, with what says the same in plain English.
var worst = map[string]string{
	`under way`:            "in progress",
	`for good`:             "permanently, or forever",
	`mend(s|ed|ing)?`:      "fix",
	`told of`:              "notified of, or reported",
	`what came of`:         "the result of",
	`goes on by itself`:    "resumes by itself",
	`how many it were`:     "how many there were",
	`there is no going on`: "it cannot continue",
	`at most for so long`:  "for up to",
	`of these, those`:      "the ones",
	`to whom`:              "the recipient",
	`for ever`:             "forever",
	`told apart`:           "distinguished",
}

// ours are words that code that is not a test has none of either, save in quotes: a process, a
// worker, an operator or a broker is who is meant.
var ours = regexp.MustCompile(`(?i)(?:^|[^"'\w.])(nobody|somebody|everybody)\b`)

// Comments, errors, log lines and pages have none of them.
func TestPhrases(t *testing.T) {
	t.Parallel()
	found := map[string]*regexp.Regexp{}
	for phrase, better := range worst {
		found[better] = regexp.MustCompile(`(?i)\b(` + phrase + `)\b`)
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir(), name == "CHANGELOG.md", name == "phrases_test.go", !slices.Contains([]string{".go", ".md", ".sql", ".yaml"}, filepath.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(path)
		shipped := filepath.Ext(path) == ".sql" || filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go")
		for i, line := range strings.Split(string(text), "\n") {
			if match := ours.FindStringSubmatch(line); shipped && match != nil {
				assert.Fail(t, "phrase", "%s:%d: %q: say who: no process, an operator, every user", path, i+1, match[1])
			}
			for better, phrase := range found {
				if match := phrase.FindString(line); match != "" {
					assert.Fail(t, "phrase", "%s:%d: %q: say %s", path, i+1, match, better)
				}
			}
		}
		return err
	}))
}
