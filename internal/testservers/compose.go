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
	"slices"
	"strings"
	"time"
)

const (
	composeFile  = "integration/compose.yaml"
	askTimeout   = 5 * time.Second // for the engine to say that it is there
	pullPatience = 5 * time.Minute // for the images to come and the containers to be healthy
	downPatience = time.Minute
)

// runner runs a command and returns what it wrote to stdout; its error holds what it wrote to
// stderr.
type runner func(ctx context.Context, name string, args ...string) (string, error)

// compose is a Docker Compose project of our own: its name is new each time, so that runs do not
// meet.
type compose struct {
	run     runner
	file    string
	project string
}

// findEngine returns a project when some service needs one, Docker Compose is installed and its
// engine runs.
func (s *Servers) findEngine(ctx context.Context, all []*service) *compose {
	needed := slices.ContainsFunc(all, func(svc *service) bool { return os.Getenv(svc.variable) == "" })
	file, found := repositoryFile(composeFile)
	if !needed || !found || !engineRuns(ctx, execute) {
		return nil
	}
	return &compose{run: execute, file: file, project: "fanout-test-" + strings.ToLower(rand.Text()[:10])}
}

// engineRuns asks the engine itself: the client alone is often installed where no engine runs.
func engineRuns(ctx context.Context, run runner) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := run(ctx, "docker", "info"); err != nil {
		return false
	}
	_, err := run(ctx, "docker", "compose", "version")
	return err == nil
}

// startContainers starts the services in one go and waits until they answer. After an error nothing
// of the project is left.
func (s *Servers) startContainers(ctx context.Context, project *compose, services []*service) error {
	fmt.Fprintf(s.log, "testservers: starting %s in containers; the first time their images are fetched\n", names(services))
	started, err := project.up(ctx, services)
	if err != nil {
		return errors.Join(err, project.down()) //nolint:contextcheck // the context may be what has ended
	}
	s.composes = append(s.composes, project)
	for _, server := range started {
		s.byService[server.Name] = server
	}
	return nil
}

func (c *compose) up(ctx context.Context, services []*service) ([]*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	args := []string{"up", "--detach", "--wait"}
	for _, svc := range services {
		args = append(args, svc.container)
	}
	if _, err := c.docker(ctx, args...); err != nil {
		return nil, err
	}
	servers := make([]*Server, 0, len(services))
	for _, svc := range services {
		server, err := c.server(ctx, svc)
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// server connects to a healthy container. The published port may answer a moment later than the
// container's own check.
func (c *compose) server(ctx context.Context, svc *service) (*Server, error) {
	address, err := c.docker(ctx, "port", svc.container, svc.port)
	if err != nil {
		return nil, err
	}
	server := &Server{Name: svc.name, URL: svc.containerURL(address)}
	err = awaitReady(ctx, nil, func(ctx context.Context) error {
		var err error
		server.Version, err = svc.probe(ctx, server.URL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("testservers: container %s at %s: %w", svc.container, address, err)
	}
	server.Origin = fmt.Sprintf("container of project %s at %s", c.project, address)
	return server, nil
}

// down removes containers, network and volumes, also after the context of the run has ended.
func (c *compose) down() error {
	ctx, cancel := context.WithTimeout(context.Background(), downPatience)
	defer cancel()
	_, err := c.docker(ctx, "down", "--volumes", "--timeout", "5")
	return err
}

func (c *compose) docker(ctx context.Context, args ...string) (string, error) {
	out, err := c.run(ctx, "docker", append([]string{"compose", "--file", c.file, "--project-name", c.project}, args...)...)
	return strings.TrimSpace(out), err
}

// execute is the runner outside of unit tests.
func execute(ctx context.Context, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe open
	out, err := cmd.Output()
	if err != nil {
		said := stderr.Bytes()
		return "", fmt.Errorf("testservers: %s %s: %w: %s", name, strings.Join(args, " "), err,
			bytes.TrimSpace(said[max(0, len(said)-logTailBytes):]))
	}
	return string(out), nil
}

// repositoryFile finds a file of this repository from the working directory, which is some
// directory of it.
func repositoryFile(name string) (string, bool) {
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}
