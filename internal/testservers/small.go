package testservers

import (
	"context"
	"os/exec"
	"time"
)

// toxiproxy makes networks between tests and their servers ill. The module integration says its version.
// It runs on this machine, not in a container, since the servers behind it listen on 127.0.0.1.
var toxiproxy = &kind{
	flag: "toxiproxy", name: "toxiproxy", variable: ToxiproxyVariable,
	find: nowhere, fetch: built("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server"), tool: "go",
	launch: launchToxiproxy, remedy: "Run in this repository, with the go command in PATH",
}

func launchToxiproxy(ctx context.Context, bin string) (*Own, error) {
	files, err := newWorkspace("toxiproxy", false)
	if err != nil {
		return nil, err
	}
	own := &Own{
		Name: "toxiproxy", files: files, ready: listens, shutdown: politely(5 * time.Second),
		url: func(address string) string { return "http://" + address },
		command: func(port string) *exec.Cmd {
			cmd := files.command(ctx, bin, "-host", "127.0.0.1", "-port", port)
			cmd.Env = append(cmd.Env, "LOG_LEVEL=error")
			return cmd
		},
	}
	return own.begin(ctx)
}

// chromium is the browser of the dashboard's tests, which start it.
var chromium = &kind{
	flag: "chromium", name: "Chromium", binVariable: ChromiumVariable,
	find: func(context.Context) string {
		return inPath([]string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"})
	},
	remedy: "Install Chromium or Chrome",
}
