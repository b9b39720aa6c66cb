package browser

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// axe is the text of axe-core, which npm brings; the test is skipped aloud where it does not.
func axe(t *testing.T) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("SKIPPED ALOUD: no npm, which would bring axe-core")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pack := exec.CommandContext(ctx, npm, "pack", "axe-core@4", "--silent")
	pack.Dir = dir
	if out, err := pack.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED ALOUD: npm does not bring axe-core: %v: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	file, err := os.Open(found[0])
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		require.NoError(t, err, "axe.min.js is not in the package")
		if header.Name == "package/axe.min.js" {
			text, err := io.ReadAll(archive)
			require.NoError(t, err)
			return string(text)
		}
	}
}

// violations are the serious and critical findings of axe-core about the page as it is.
const violations = `axe.run({resultTypes: ["violations"]}).then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact))
	.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join(" | ")))`

// TestAccessibility: axe-core has no serious finding on any page, in the light and in the dark, nor
// in a dialog.
func TestAccessibility(t *testing.T) {
	testenv.NeedLong(t)
	p := newPlace(t)
	script := axe(t)
	check := func(where string) {
		p.Helper()
		var found []string
		p.do(chromedp.Evaluate(script, nil), chromedp.Evaluate(violations, &found, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
		assert.Empty(t, found, where)
	}
	for _, theme := range []string{"light", "dark"} {
		p.do(scheme(theme))
		for name, hash := range pages {
			p.do(chromedp.Navigate("about:blank"))
			p.visit(hash)
			check(name + ", " + theme)
		}
		p.visit("#/failures")
		p.click("button", "Requeue all")
		p.says("40 rows match.")
		check("dialog, " + theme)
	}
}

// TestNames: whatever can be pressed or filled in has a name, and the page has one main heading. It
// needs nothing but the browser.
func TestNames(t *testing.T) {
	p := newPlace(t)
	for name, hash := range pages {
		p.visit(hash)
		assert.Empty(t, ask[[]string](p, `[...document.querySelectorAll("button, a[href], input, select")].filter((e) =>
			!(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length || e.title)).map((e) => e.outerHTML)`), name)
		assert.Equal(t, 1, ask[int](p, `document.querySelectorAll("h1").length`), name)
		assert.Equal(t, "en", ask[string](p, `document.documentElement.lang`), name)
	}
}
