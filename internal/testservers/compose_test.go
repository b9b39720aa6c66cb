package testservers

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// engine records the commands it is given and answers those it knows; the others fail.
type engine struct {
	answers map[string]string
	calls   []string
}

func (e *engine) run(_ context.Context, name string, args ...string) (string, error) {
	call := strings.Join(append([]string{name}, args...), " ")
	e.calls = append(e.calls, call)
	if answer, ok := e.answers[call]; ok {
		return answer, nil
	}
	return "", errors.New("no such thing")
}

func TestEngineRuns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		answers map[string]string
		want    bool
	}{
		{nil, false},
		{map[string]string{"docker compose version": "v2"}, false}, // the client alone
		{map[string]string{"docker info": "ok"}, false},            // an engine without Compose
		{map[string]string{"docker info": "ok", "docker compose version": "v2"}, true},
	} {
		require.Equal(t, tt.want, engineRuns(t.Context(), (&engine{answers: tt.answers}).run))
	}
}

// A service that always answers, so that no container is needed.
func answering() *service {
	return &service{
		name: "Thing", container: "thing", port: "99",
		containerURL: func(address string) string { return "thing://" + address },
		probe:        func(context.Context, string) (string, error) { return "1.2", nil },
	}
}

const composeThing = "docker compose --file /f.yaml --project-name p "

func TestStartContainers(t *testing.T) {
	t.Parallel()
	docker := &engine{answers: map[string]string{
		composeThing + "up --detach --wait thing":   "",
		composeThing + "port thing 99":              "127.0.0.1:32768\n",
		composeThing + "down --volumes --timeout 5": "",
	}}
	servers := &Servers{log: io.Discard, byService: map[string]*Server{}}
	project := &compose{run: docker.run, file: "/f.yaml", project: "p"}
	require.NoError(t, servers.startContainers(t.Context(), project, []*service{answering()}))
	require.Equal(t, "thing://127.0.0.1:32768", servers.byService["Thing"].URL)
	require.Equal(t, "Thing 1.2: container of project p at 127.0.0.1:32768", servers.byService["Thing"].String())

	require.NoError(t, servers.Stop())
	require.NoError(t, servers.Stop(), "a second time is harmless")
	require.Equal(t, []string{
		composeThing + "up --detach --wait thing",
		composeThing + "port thing 99",
		composeThing + "down --volumes --timeout 5",
	}, docker.calls)
}

func TestStartContainersLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	docker := &engine{answers: map[string]string{composeThing + "down --volumes --timeout 5": ""}}
	servers := &Servers{log: io.Discard, byService: map[string]*Server{}}
	project := &compose{run: docker.run, file: "/f.yaml", project: "p"}
	require.Error(t, servers.startContainers(t.Context(), project, []*service{answering()}))
	require.Empty(t, servers.byService)
	require.Contains(t, docker.calls, composeThing+"down --volumes --timeout 5")
}
