// Command surface counts the exported names at the top level of all packages that a program can
// import, over the modules that are released, and fails where there are more than the bound: each one
// is a promise from the first release on. Run it from the root of the repository; -v lists packages.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// most is the bound. Names that become fields or methods are names all the same: it is there so that
// a maintainer looks whether a further one is worth it.
const most = 820

// unreleased are folders of modules that are never imported, and of what is no code of ours.
var unreleased = []string{"benchmarks", "demo", "deploy", "examples", "integration", "testdata", "internal"}

func main() {
	verbose := flag.Bool("v", false, "list the packages")
	flag.Parse()
	names, err := count(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	total := 0
	packages := make([]string, 0, len(names))
	for dir, n := range names {
		packages, total = append(packages, dir), total+n
	}
	slices.SortFunc(packages, func(a, b string) int { return cmp.Or(names[b]-names[a], strings.Compare(a, b)) })
	if *verbose {
		for _, dir := range packages {
			fmt.Fprintf(os.Stdout, "%4d  %s\n", names[dir], dir)
		}
	}
	fmt.Fprintf(os.Stdout, "surface: %d exported names in %d packages (at most %d)\n", total, len(packages), most)
	if total > most {
		os.Exit(1)
	}
}

// count returns the exported names below a folder, by package.
func count(root string) (map[string]int, error) {
	names := map[string]int{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (slices.Contains(unreleased, name) || strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if n := exported(file); n > 0 && file.Name.Name != "main" {
			names[filepath.ToSlash(filepath.Dir(path))] += n
		}
		return nil
	})
	return names, err
}

func exported(file *ast.File) (n int) {
	add := func(name *ast.Ident) {
		if name.IsExported() {
			n++
		}
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add(name)
					}
				}
			}
		}
	}
	return n
}
