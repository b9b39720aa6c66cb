package testenv

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/golden"
)

// Golden compares a text with the file of this name in the test's package, which is embedded: so
// that go test knows by the program what the result depends on, in every clone.
func Golden(t testing.TB, files fs.FS, name, got string) {
	t.Helper()
	update, err := golden.Update()
	if err != nil {
		t.Fatal(err)
	}
	if update {
		err := os.MkdirAll(filepath.Dir(name), 0o750)
		if err == nil {
			err = os.WriteFile(name, []byte(got), 0o600)
		}
		if err != nil {
			t.Fatalf("write a golden file: %v", err)
		}
		return
	}
	want, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatalf("read a golden file (%s=1 go test -run '^%s$' writes it): %v", golden.Variable, t.Name(), err)
	}
	assert.Equal(t, string(want), got, "%s=1 go test -run '^%s$' writes %s anew", golden.Variable, t.Name(), name)
}
