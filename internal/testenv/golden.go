package testenv

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/golden"
)

// Golden compares a text with the file of this name in the test's package, which is embedded.
func Golden(t testing.TB, files fs.FS, name, got string) {
	t.Helper()
	again := golden.Variable + "=1 go test -run '^" + t.Name() + "$' writes " + name
	update, err := golden.Update()
	if update {
		err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, []byte(got), 0o600))
	}
	want := []byte(got)
	if err == nil && !update {
		want, err = fs.ReadFile(files, name)
	}
	if err != nil {
		t.Fatalf("%v (%s)", err, again)
	}
	assert.Equal(t, string(want), got, again)
}
