package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
)

// browse shows a page of ours in the user's browser, where there is one: an error is none of ours,
// for the address is printed too.
func browse(ctx context.Context, url string) {
	name, args := browser(runtime.GOOS, os.Getenv, url)
	if name == "" {
		return
	}
	// The browser outlives us. It gets neither our input nor our output.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...) //nolint:gosec // the name is one of three, the URL is our own
	if cmd.Start() == nil {
		go cmd.Wait() //nolint:errcheck // so that it leaves no zombie
	}
}

// browser is the command that opens a page on a system; none where no one would see it.
func browser(system string, env func(string) string, url string) (name string, args []string) {
	switch system {
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler", url}
	case "darwin":
		return "open", []string{url}
	}
	if env("DISPLAY") == "" && env("WAYLAND_DISPLAY") == "" { // a text browser would take the terminal from us
		return "", nil
	}
	return "xdg-open", []string{url}
}
