package testservers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

const chromiumName = "Chromium"

// chromium is the browser in which the dashboard is tested. It is started by the tests themselves.
var chromium = &service{name: chromiumName, variable: ChromiumVariable, binVariable: ChromiumVariable, find: findChromium}

func findChromium(context.Context) (string, bool) {
	for _, name := range []string{os.Getenv(ChromiumVariable), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// findBrowser gets the browser, under the same rules as the servers. Without one the tests of the
// dashboard are skipped, which is no reason to run no test at all.
func (s *Servers) findBrowser(ctx context.Context) {
	if s.facts(ctx, chromium, false).binary {
		return
	}
	if found, ok := findManager(exec.LookPath); ok && found.packages[chromiumName] == "" {
		fmt.Fprintf(s.log, "testservers: no browser, and %s has no package of it: the tests of the dashboard are skipped\n", found.command)
		return
	}
	if err := s.install(ctx, []*service{chromium}); err != nil {
		fmt.Fprintf(s.log, "testservers: no browser, so the tests of the dashboard are skipped: %v\n", err)
	}
}
