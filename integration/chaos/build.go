//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	module        = "github.com/gorm-fanout/fanout"
	workerPackage = module + "/integration/chaos/cmd/worker"
)

// edit replaces a text in a source file of this module, or of Go's library.
type edit struct {
	file     string // relative to the module's, or to Go's, directory
	old, new string
}

// builder builds the program under test, with and without edits. It changes no source file: the
// compiler gets edited copies.
type builder struct {
	dir    string // for programs and copies
	module string // directory
	goroot string
}

func newBuilder(ctx context.Context, dir string) (*builder, error) {
	said, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	root, err2 := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("chaos: the rig builds the program under test, and needs Go and the module's sources: %w", err)
	}
	return &builder{dir: dir, module: strings.TrimSpace(string(said)), goroot: strings.TrimSpace(string(root))}, nil
}

// build builds the worker with edits and returns the path of the program.
func (b *builder) build(ctx context.Context, name string, edits []edit) (string, error) {
	program := filepath.Join(b.dir, "worker-"+name)
	args := []string{"build", "-ldflags=-w", "-o", program} // without DWARF, which takes half of the time
	if len(edits) > 0 {
		overlay, err := b.overlay(name, edits)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, workerPackage)...)
	cmd.Dir = b.module
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("chaos: build the worker (%s): %w: %s", name, err, bytes.TrimSpace(out))
	}
	return program, nil
}

// overlay writes edited copies, and the file that tells the compiler of them.
func (b *builder) overlay(name string, edits []edit) (string, error) {
	texts := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(b.module, e.file)
		if strings.HasPrefix(e.file, "src/") {
			path = filepath.Join(b.goroot, e.file)
		}
		text, edited := texts[path]
		if !edited {
			content, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("chaos: edit for %q: %w", name, err)
			}
			text = string(content)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("chaos: edit for %q: %s holds the text to replace %d times, not once: adapt the edit to the source of today:\n%s", name, e.file, n, e.old)
		}
		texts[path] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		copied := filepath.Join(b.dir, fmt.Sprintf("%s-%d-%s", name, len(replace), filepath.Base(path)))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = copied
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.dir, name+"-overlay.json")
	return file, os.WriteFile(file, content, 0o600)
}
