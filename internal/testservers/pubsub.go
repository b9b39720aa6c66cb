package testservers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

var pubSub = &kind{
	flag: "pubsub", name: "Pub/Sub emulator", variable: PubSubVariable, binVariable: PubSubJarVariable,
	find: findPubSub, launch: launchPubSub,
	remedy: "Run gcloud components install pubsub-emulator, or install the package google-cloud-cli-pubsub-emulator, and Java",
}

// findPubSub returns the path of the emulator's jar in a Google Cloud SDK, where there is a Java for it.
func findPubSub(context.Context) string {
	if _, err := exec.LookPath(javaPath()); err != nil {
		return ""
	}
	roots := []string{os.Getenv("CLOUDSDK_ROOT_DIR"), "/usr/lib/google-cloud-sdk", "/opt/google-cloud-sdk", "/google-cloud-sdk", "/opt/homebrew/share/google-cloud-sdk"}
	if gcloud, err := exec.LookPath("gcloud"); err == nil {
		if gcloud, err = filepath.EvalSymlinks(gcloud); err == nil {
			roots = append(roots, filepath.Dir(filepath.Dir(gcloud)))
		}
	}
	for _, root := range roots {
		jars, _ := filepath.Glob(filepath.Join(root, "platform", "pubsub-emulator", "lib", "cloud-pubsub-emulator-*.jar")) // fails for a malformed pattern only
		if root != "" && len(jars) > 0 {
			return jars[len(jars)-1]
		}
	}
	return ""
}

// launchPubSub starts an emulator, which keeps everything in memory.
func launchPubSub(ctx context.Context, jar string) (*Own, error) {
	files, err := newWorkspace("pubsub", false)
	if err != nil {
		return nil, err
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jar), "cloud-pubsub-emulator-"), ".jar")
	own := &Own{
		Name: "Pub/Sub emulator", Version: version, files: files, ready: logs("Server started, listening"), shutdown: politely(5 * time.Second),
		url: func(address string) string { return address },
		command: func(port string) *exec.Cmd {
			return files.java(ctx, "-jar", jar, "--host=127.0.0.1", "--port="+port)
		},
	}
	return own.begin(ctx)
}

func javaPath() string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", "java")
	}
	return "java"
}

// java runs a program in a small machine that starts soon.
func (w *workspace) java(ctx context.Context, args ...string) *exec.Cmd {
	return w.command(ctx, javaPath(), append([]string{"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, args...)...)
}
