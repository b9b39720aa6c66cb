package testservers

import "context"

// chromium is the browser of the dashboard's tests, which start it.
var chromium = &kind{
	flag: "chromium", name: "Chromium", binVariable: ChromiumVariable,
	find: func(context.Context) string {
		return inPath([]string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"})
	},
	remedy: "Install Chromium or Chrome",
}
