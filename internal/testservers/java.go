package testservers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// javaSays is how every Java names its version: 17.0.15, and 1.8.0 for 8.
var javaSays = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// findJava returns the path of java: the one of JAVA_HOME, else the one in PATH. It is an error where
// that is older than servers need.
func findJava(ctx context.Context, oldest int) (string, error) {
	path := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		path = filepath.Join(home, "bin", "java")
	}
	java, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("testservers: Java is not on this machine: %w", err)
	}
	said, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("testservers: %s -version: %w", java, err)
	}
	version := javaSays.FindSubmatch(said)
	if version == nil {
		return "", fmt.Errorf("testservers: %s -version says %.200q", java, said)
	}
	if major, err := strconv.Atoi(string(version[1])); err != nil || major < oldest {
		return "", fmt.Errorf("testservers: %s is Java %s, and %d or later is needed", java, version[1], oldest)
	}
	return java, nil
}
