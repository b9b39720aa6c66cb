package testservers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

const (
	toxiproxyName = "toxiproxy"
	// toxiproxyPackage is a tool of the module integration, which says the version.
	toxiproxyPackage = "github.com/Shopify/toxiproxy/v2/cmd/server"

	maxAnswer = 1 << 10 // of toxiproxy to a probe, in bytes
)

// toxiproxy makes networks between tests and their servers ill. It runs on this machine, not in a
// container, because what it stands in front of listens on 127.0.0.1; and it is built, with the
// binary that is found, the go command: no package manager has this version.
var toxiproxy = &service{
	name: toxiproxyName, variable: ToxiproxyVariable, find: findGo, launch: launchToxiproxy, probe: probeToxiproxy,
}

// StartToxiproxy gets the proxy of the tests that make networks ill: the one that
// FANOUT_TEST_TOXIPROXY names, else one that it builds with the go command, in the workspace of
// this repository, and starts at a port of its own. From then on Environ names it, and Stop stops
// it.
func (s *Servers) StartToxiproxy(ctx context.Context) error {
	if os.Getenv(toxiproxy.variable) != "" {
		if err := s.useGiven(ctx, toxiproxy); err != nil {
			return err
		}
	} else {
		command, found := toxiproxy.find(ctx)
		if !found {
			return fmt.Errorf("testservers: build toxiproxy: no go command in PATH; %s names a toxiproxy that runs", ToxiproxyVariable)
		}
		server, err := toxiproxy.launch(ctx, command)
		if err != nil {
			return err
		}
		s.byService[toxiproxyName] = server
	}
	s.Toxiproxy = s.byService[toxiproxyName]
	return nil
}

func findGo(context.Context) (string, bool) {
	path, err := exec.LookPath("go")
	return path, err == nil
}

// launchToxiproxy builds the proxy with the go command and starts it.
func launchToxiproxy(ctx context.Context, command string) (*Server, error) {
	files, err := newWorkspace(toxiproxyName, nil)
	if err != nil {
		return nil, err
	}
	bin := files.path("server.exe") // Windows wants the ending, others ignore it
	said, err := exec.CommandContext(ctx, command, "build", "-o", bin, toxiproxyPackage).CombinedOutput()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("testservers: build toxiproxy: %w: %s", err, said), files.remove())
	}
	// A proxy of this name, which is never enabled, tells our toxiproxy from another one that was
	// given the same port.
	mark := strings.ToLower(rand.Text())
	config := files.path("proxies.json")
	proxies := fmt.Sprintf(`[{"name":%q,"listen":"127.0.0.1:0","upstream":"127.0.0.1:0","enabled":false}]`, mark)
	if err := os.WriteFile(config, []byte(proxies), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("testservers: configure toxiproxy: %w", err), files.remove())
	}
	var version string
	run := &local{
		name:      toxiproxyName,
		workspace: files,
		command: func(port string) *exec.Cmd {
			cmd := files.command(ctx, bin, "-host", "127.0.0.1", "-port", port, "-config", config)
			cmd.Env = append(cmd.Env, "LOG_LEVEL=error")
			return cmd
		},
		ready: func(ctx context.Context, port string, _ int) error {
			if _, err := ask(ctx, toxiproxyURL(port)+"/proxies/"+mark); err != nil {
				return err
			}
			said, err := probeToxiproxy(ctx, toxiproxyURL(port))
			version = said
			return err
		},
		shutdown: redisShutdown,
		usual:    "30474",
	}
	port, stop, err := run.run(ctx)
	if err != nil {
		return nil, errors.Join(err, files.remove())
	}
	return &Server{
		Name: toxiproxyName, URL: toxiproxyURL(port), Version: version,
		Origin: "built as integration/go.mod says, and started at 127.0.0.1:" + port, stop: stop,
	}, nil
}

func toxiproxyURL(port string) string { return "http://" + net.JoinHostPort("127.0.0.1", port) }

func probeToxiproxy(ctx context.Context, url string) (version string, err error) {
	said, err := ask(ctx, strings.TrimSuffix(url, "/")+"/version")
	return string(said), err
}

// ask returns what an HTTP server says to a GET.
func ask(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody) //nolint:gosec // whoever runs the tests names the server
	if err != nil {
		return nil, withoutURL(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request) //nolint:gosec // as above
	if err != nil {
		return nil, withoutURL(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxAnswer))
}
