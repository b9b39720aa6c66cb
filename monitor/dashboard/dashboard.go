// Package dashboard holds the pages for the person on call: which broker is behind, since when,
// why, and what to press.
//
// They are plain HTML, CSS and JavaScript modules with no build step. They load nothing from
// elsewhere, hold no inline script or style, and talk to the HTTP API of package monitor by
// addresses relative to their own, so that both can be mounted under any prefix.
package dashboard

import (
	"embed"
	"io/fs"
)

//go:embed assets
var embedded embed.FS

// Assets are the files: index.html, which is for the address that the API is mounted at, and what
// it refers to as assets/NAME. Names in it are relative to the directory assets. It is safe for
// concurrent use.
var Assets = mustSub()

func mustSub() fs.FS {
	files, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the name above is no path
	}
	return files
}
