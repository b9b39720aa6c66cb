// Command modproxy makes releases that go to no network: it adds modules to a module proxy of files
// (GOPROXY=file://...), as a release of them all with one version. .ci/skew builds with such releases.
//
//	modproxy PROXY VERSION DIRECTORY...
//
// Each directory has a go.mod, and what lies in it is released, but what begins with another go.mod. A zip
// that the go command would refuse, for its size or the names of files, is an error.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: modproxy PROXY VERSION DIRECTORY...")
		os.Exit(2)
	}
	for _, dir := range os.Args[3:] {
		if err := release(os.Args[1], os.Args[2], dir); err != nil {
			fmt.Fprintf(os.Stderr, "modproxy: release %s as %s: %v\n", dir, os.Args[2], err)
			os.Exit(1)
		}
	}
}

// release adds the module in a directory to the proxy.
func release(proxy, version, dir string) (err error) {
	file, err := os.ReadFile(filepath.Join(dir, "go.mod")) //nolint:gosec // the caller names it
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath(file), Version: version}
	if err := module.Check(m.Path, m.Version); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	at := filepath.Join(proxy, escaped, "@v")
	if err := os.MkdirAll(at, 0o750); err != nil { //nolint:gosec // as above
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()}) // the same at each run
	if err != nil {
		return err
	}
	for ending, content := range map[string][]byte{".info": info, ".mod": file} {
		if err := os.WriteFile(filepath.Join(at, version+ending), content, 0o600); err != nil { //nolint:gosec // as above
			return err
		}
	}
	archive, err := os.Create(filepath.Join(at, version+".zip")) //nolint:gosec // as above
	if err != nil {
		return err
	}
	if err := errors.Join(zip.CreateFromDir(archive, m, dir), archive.Close()); err != nil {
		return err
	}
	list, err := os.OpenFile(filepath.Join(at, "list"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // as above
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(list, version)
	return errors.Join(err, list.Close())
}
