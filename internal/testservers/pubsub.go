package testservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const (
	pubSubName = "Pub/Sub emulator"
	pubSubJava = 11 // the oldest that runs it
)

var pubSub = &service{
	name:        pubSubName,
	variable:    PubSubVariable,
	binVariable: PubSubJarVariable,
	find:        findPubSub,
	fetch: func(context.Context, io.Writer) (string, error) {
		return "", errors.New("no Google Cloud SDK with the emulator, or no Java, is on this machine")
	},
	launch: launchPubSub,
	probe:  probePubSub,
	remedy: "gcloud components install pubsub-emulator, or the package google-cloud-cli-pubsub-emulator, and Java; " + PubSubVariable +
		" names a running one, " + PubSubJarVariable + " its jar",
}

// sdkRoots are where a Google Cloud SDK is installed, beside those that gcloud and the environment
// tell of.
var sdkRoots = []string{
	"/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/usr/local/google-cloud-sdk", "/opt/google-cloud-sdk", "/google-cloud-sdk",
	"/opt/homebrew/share/google-cloud-sdk", "/usr/local/share/google-cloud-sdk", "/snap/google-cloud-cli/current",
}

// findPubSub returns the path of the emulator's jar: the one that the variable names, else one of a
// Google Cloud SDK, where Java can run it.
func findPubSub(ctx context.Context) (string, bool) {
	if _, err := findJava(ctx, pubSubJava); err != nil {
		return "", false
	}
	if jar := os.Getenv(PubSubJarVariable); jar != "" {
		_, err := os.Stat(jar) //nolint:gosec // the user names it
		return jar, err == nil
	}
	roots := []string{os.Getenv("CLOUDSDK_ROOT"), os.Getenv("CLOUDSDK_ROOT_DIR")}
	if gcloud, err := exec.LookPath("gcloud"); err == nil {
		if gcloud, err = filepath.EvalSymlinks(gcloud); err == nil {
			roots = append(roots, filepath.Dir(filepath.Dir(gcloud)))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, "google-cloud-sdk"))
	}
	for _, root := range append(roots, sdkRoots...) {
		if root == "" {
			continue
		}
		jars, _ := filepath.Glob(filepath.Join(root, "platform", "pubsub-emulator", "lib", "cloud-pubsub-emulator-*.jar")) // fails for a malformed pattern only
		if len(jars) > 0 {
			return jars[len(jars)-1], true
		}
	}
	return "", false
}

// launchPubSub starts an emulator, which keeps everything in memory.
func launchPubSub(ctx context.Context, jar string) (*Server, error) {
	java, err := findJava(ctx, pubSubJava)
	if err != nil {
		return nil, err
	}
	files, err := newWorkspace("pubsub", nil)
	if err != nil {
		return nil, err
	}
	run := &local{
		name:      pubSubName,
		workspace: files,
		command: func(port string) *exec.Cmd {
			return files.command(ctx, java, "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", jar, "--host=127.0.0.1", "--port="+port)
		},
		ready: func(ctx context.Context, port string, _ int) error {
			_, err := probePubSub(ctx, net.JoinHostPort("127.0.0.1", port))
			return err
		},
		shutdown: []child.Step{{Signal: syscall.SIGTERM, Patience: 5 * time.Second}, {Signal: syscall.SIGKILL, Patience: 5 * time.Second}},
		usual:    "30085",
	}
	port, stop, err := run.run(ctx)
	if err != nil {
		return nil, errors.Join(err, files.remove())
	}
	address := net.JoinHostPort("127.0.0.1", port)
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jar), "cloud-pubsub-emulator-"), ".jar")
	return &Server{
		Name: pubSubName, URL: address, Version: strings.TrimSuffix(version, "-all"), Origin: fmt.Sprintf("started from %s at %s", jar, address), stop: stop,
	}, nil
}

// probePubSub asks whether an emulator is there: it answers a browser, too, but does not say which
// version it is.
func probePubSub(ctx context.Context, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody) //nolint:gosec // so is this
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(request) //nolint:gosec // as above
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 100))
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK || strings.TrimSpace(string(said)) != "Ok" {
		return "", fmt.Errorf("the server answers otherwise than the %s does: %s, %q", pubSubName, answer.Status, said)
	}
	return "of unknown version", nil
}
