package signature_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// What docs/brokers.md has for a shell makes keys of one form out of the other, and all of them are one pair.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "openssl", "base64"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	var script string
	for block := range strings.SplitSeq(testenv.PageCode(t, "brokers.md"), "```\n") {
		if code, isShell := strings.CutPrefix(block, "```sh\n"); isShell && strings.Contains(code, "openssl genpkey") {
			script = code
		}
	}
	require.NotEmpty(t, script)
	dir := t.TempDir()
	run := exec.CommandContext(t.Context(), "sh", "-euc", script+`echo "$private"; echo "$public"`)
	run.Dir, run.Stderr = dir, os.Stderr
	out, err := run.Output()
	require.NoError(t, err)
	again, texts, found := strings.Cut(string(out), "whsk_")
	require.True(t, found, "%s", out)
	private, public, _ := strings.Cut("whsk_"+texts, "\n")

	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	assert.Equal(t, read("public.pem"), again)
	for _, form := range []string{private, read("private.pem")} {
		var producer signature.Keys
		require.NoError(t, producer.Add("k", form))
		m := brokers.Message{ID: "1", Type: "T", Destination: "s"}
		producer.Sign(&m, time.Now())
		for _, form := range []string{public, again} {
			var partner signature.Keys
			require.NoError(t, partner.Add("k", form))
			_, err := partner.Verify("s", map[string]string{"id": "1", "type": "T", "signature": m.Attributes[0].Value}, nil)
			require.NoError(t, err)
		}
	}
}
