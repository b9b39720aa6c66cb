package testservers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	composeFile  = "integration/compose.yaml"
	askTimeout   = 5 * time.Second // for the engine to say that it runs
	pullPatience = 5 * time.Minute // for the images to come and the containers to be healthy
	downPatience = time.Minute
)

// compose is a Docker Compose project with a new name, so that runs do not meet.
type compose struct{ file, project string }

// startContainers starts what no variable names, where an engine runs. Where it fails, binaries are tried.
func (s *Servers) startContainers(ctx context.Context) {
	var wanted []*server
	var services []string
	for _, one := range s.all {
		if one.url == "" && one.container != "" {
			wanted, services = append(wanted, one), append(services, one.container)
		}
	}
	file, found := repositoryFile(composeFile)
	if len(wanted) == 0 || !found {
		return
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := execute(asking, "docker", "info"); err != nil { // the client alone is often installed where no engine runs
		return
	}
	fmt.Fprintf(s.log, "testservers: starting %s in containers; the first time their images are fetched\n", strings.Join(services, ", "))
	project := &compose{file, "fanout-test-" + strings.ToLower(rand.Text()[:10])}
	if err := project.up(ctx, wanted, services); err != nil {
		fmt.Fprintf(s.log, "testservers: no containers, so binaries are tried: %v\n", errors.Join(err, project.down())) //nolint:contextcheck // it may have ended
		for _, one := range wanted {
			one.url = ""
		}
		return
	}
	s.project = project
}

func (c *compose) up(ctx context.Context, wanted []*server, services []string) error {
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	if _, err := c.docker(ctx, append([]string{"up", "--detach", "--wait"}, services...)...); err != nil {
		return err
	}
	for _, one := range wanted {
		address, err := c.docker(ctx, "port", one.container, one.port)
		if err != nil {
			return err
		}
		one.url, one.origin = one.containerURL(address), fmt.Sprintf("container of project %s at %s", c.project, address)
	}
	return nil
}

// down removes containers, network and volumes, also after the context of the run has ended.
func (c *compose) down() error {
	ctx, cancel := context.WithTimeout(context.Background(), downPatience)
	defer cancel()
	_, err := c.docker(ctx, "down", "--volumes", "--timeout", "5")
	return err
}

func (c *compose) docker(ctx context.Context, args ...string) (string, error) {
	out, err := execute(ctx, "docker", append([]string{"compose", "--file", c.file, "--project-name", c.project}, args...)...)
	return strings.TrimSpace(out), err
}

// execute runs a command and returns its output; its error holds what the command wrote to stderr.
func execute(ctx context.Context, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe open
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("testservers: %s %s: %w: %s", name, strings.Join(args, " "), err, tail(stderr.Bytes()))
	}
	return string(out), nil
}

// repositoryFile finds a file of this repository from the working directory, or above it.
func repositoryFile(name string) (string, bool) {
	dir, err := os.Getwd()
	for err == nil {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return "", false
}
