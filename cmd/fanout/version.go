package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/outbox"
)

// What a build without a repository is told by the linker, as in
// -ldflags "-X main.stampedVersion=v1.2.3 -X main.stampedCommit=0123abcd": an image is built of
// files alone. Of an empty one the build information knows.
var stampedVersion, stampedCommit string //nolint:gochecknoglobals // the linker sets them

// build is what "fanout version" says of this binary.
type build struct {
	Version string `json:"version"`
	// Commit is empty where neither the linker nor a repository has said it.
	Commit string `json:"commit,omitempty"`
	// Modified is true where files differed from the commit.
	Modified  bool     `json:"modified"`
	Go        string   `json:"go"`
	Platform  string   `json:"platform"`
	Databases []string `json:"databases"`
	Brokers   []string `json:"brokers"`
}

// thisBuild describes the binary that runs.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return buildOf(info, stampedVersion, stampedCommit)
}

func buildOf(info *debug.BuildInfo, version, commit string) build {
	b := build{
		Version: cmp.Or(version, info.Main.Version, "(unknown)"), Commit: commit,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Databases: databases(), Brokers: clients.Names(),
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, setting.Value)
		case "vcs.modified":
			b.Modified = commit == "" && setting.Value == "true"
		}
	}
	return b
}

func databases() []string {
	return []string{string(outbox.Postgres), string(outbox.SQLServer), string(outbox.MySQL), string(outbox.SQLite)}
}

func (b build) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "fanout %s\n", b.Version)
	if b.Commit != "" {
		modified := ""
		if b.Modified {
			modified = ", with changes"
		}
		fmt.Fprintf(&out, "commit     %s%s\n", b.Commit, modified)
	}
	fmt.Fprintf(&out, "go         %s %s\n", b.Go, b.Platform)
	fmt.Fprintf(&out, "databases  %s\n", strings.Join(b.Databases, ", "))
	fmt.Fprintf(&out, "brokers    %s\n", strings.Join(b.Brokers, ", "))
	return out.String()
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit, and the databases and brokers that this binary knows",
		Args:  noArgs,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*asJSON {
			_, err := fmt.Fprint(cmd.OutOrStdout(), thisBuild())
			return err
		}
		return printJSON(cmd, thisBuild())
	}
	return cmd
}
