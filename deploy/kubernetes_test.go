package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/gorm-fanout/fanout/config"
)

const kubernetesBase = "kubernetes/base"

type pairs = map[string]string

// object has the fields of Kubernetes' objects that the tests below look at.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     pairs
	Spec     struct {
		Selector    any
		PodSelector struct{ MatchLabels pairs }
		Ports       []struct{ TargetPort string }
		Template    struct {
			Metadata struct{ Labels pairs }
			Spec     struct {
				TerminationGracePeriodSeconds int64
				SecurityContext               struct{ RunAsNonRoot bool }
				Containers                    []container
				Volumes                       []struct{ ConfigMap struct{ Name string } }
			}
		}
	}
}

type container struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct{ SecretKeyRef struct{ Name, Key string } }
	}
	Ports []struct {
		Name          string
		ContainerPort int
	}
	StartupProbe, LivenessProbe, ReadinessProbe probe
	SecurityContext                             struct {
		AllowPrivilegeEscalation *bool
		ReadOnlyRootFilesystem   bool
		Capabilities             struct{ Drop []string }
	}
}

type probe struct{ HTTPGet struct{ Path, Port string } }

// variables are a container's, of which those in secrets have a value of tests.
func (c container) variables(t *testing.T) map[string]string {
	t.Helper()
	said := map[string]string{}
	for _, variable := range c.Env {
		said[variable.Name] = variable.Value
		if strings.HasSuffix(variable.Name, "_URL") || strings.HasSuffix(variable.Name, "_TOKEN") {
			assert.Equal(t, "fanout", variable.ValueFrom.SecretKeyRef.Name, "a secret is there by reference")
			assert.Equal(t, variable.Name, variable.ValueFrom.SecretKeyRef.Key)
			assert.Empty(t, variable.Value)
			said[variable.Name] = "redis://" + strings.ToLower(variable.Name) + ":6379/0"
		}
	}
	return said
}

// built are the objects of the base, as kustomize makes them, by kind; each is what Kubernetes takes.
func built(t *testing.T) map[string]object {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), kubernetesBase)
	require.NoError(t, err)
	check := follows(t, "testdata/kubernetes.schema.json")
	byKind := map[string]object{}
	for _, resource := range resources.Resources() {
		text, err := resource.AsYAML()
		require.NoError(t, err)
		require.NoError(t, check(text), string(text))
		var made object
		asJSON, err := resource.MarshalJSON()
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(asJSON, &made))
		require.Empty(t, byKind[made.Kind].Kind, "two of kind %s", made.Kind)
		byKind[made.Kind] = made
	}
	return byKind
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	objects := built(t)
	assert.ElementsMatch(t, []string{"ConfigMap", "Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount"}, slices.Collect(maps.Keys(objects)))
	relay, job := objects["Deployment"].Spec.Template, objects["Job"].Spec.Template
	main, migrate := relay.Spec.Containers[0], job.Spec.Containers[0]

	selects := func(selector any, pods pairs) {
		text, err := json.Marshal(selector)
		require.NoError(t, err)
		var wanted pairs
		if nested := (struct{ MatchLabels pairs }{}); json.Unmarshal(text, &nested) == nil && nested.MatchLabels != nil {
			wanted = nested.MatchLabels
		} else {
			require.NoError(t, json.Unmarshal(text, &wanted))
		}
		assert.NotEmpty(t, wanted)
		for name, value := range wanted {
			assert.Equal(t, value, pods[name], name)
		}
	}
	for _, kind := range []string{"Deployment", "Service", "PodDisruptionBudget"} {
		selects(objects[kind].Spec.Selector, relay.Metadata.Labels)
	}
	selects(objects["NetworkPolicy"].Spec.PodSelector, relay.Metadata.Labels)
	selects(objects["NetworkPolicy"].Spec.PodSelector, job.Metadata.Labels)

	for _, pod := range []object{objects["Deployment"], objects["Job"]} {
		assert.True(t, pod.Spec.Template.Spec.SecurityContext.RunAsNonRoot)
		assert.Equal(t, objects["ConfigMap"].Metadata.Name, pod.Spec.Template.Spec.Volumes[0].ConfigMap.Name, "with the hash of its content")
		for _, c := range pod.Spec.Template.Spec.Containers {
			require.NotNil(t, c.SecurityContext.AllowPrivilegeEscalation)
			assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
			assert.True(t, c.SecurityContext.ReadOnlyRootFilesystem)
			assert.Equal(t, []string{"ALL"}, c.SecurityContext.Capabilities.Drop)
			assert.Contains(t, c.Args, "/etc/fanout/fanout.yaml")
		}
	}

	file := t.TempDir() + "/fanout.yaml"
	require.NoError(t, os.WriteFile(file, []byte(objects["ConfigMap"].Data["fanout.yaml"]), 0o600))
	cfg := loaded(t, file, main.variables(t))
	loaded(t, file, migrate.variables(t), config.WithUnsetVariables("consumers", "brokers", "monitor")) // as the command reads it
	graceful(t, cfg, time.Duration(relay.Spec.TerminationGracePeriodSeconds)*time.Second)
	assert.Equal(t, "0.0.0.0:8088", cfg.Monitor.Listen)
	assert.Equal(t, 8088, main.Ports[0].ContainerPort)
	assert.Equal(t, main.Ports[0].Name, objects["Service"].Spec.Ports[0].TargetPort)

	var api struct{ Paths map[string]any }
	openapi, err := os.ReadFile("../monitor/openapi.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(openapi, &api))
	assert.Equal(t, "/healthz", main.StartupProbe.HTTPGet.Path)
	assert.Equal(t, "/healthz", main.LivenessProbe.HTTPGet.Path, "a relay that waits for its database is not restarted")
	assert.Equal(t, "/readyz", main.ReadinessProbe.HTTPGet.Path)
	for _, asked := range []probe{main.StartupProbe, main.LivenessProbe, main.ReadinessProbe} {
		assert.Contains(t, api.Paths, asked.HTTPGet.Path)
		assert.Equal(t, main.Ports[0].Name, asked.HTTPGet.Port)
	}
}

// The configurations that are installed say where editors find their schema, and name each secret as a
// variable.
func TestInstalledConfigurations(t *testing.T) {
	t.Parallel()
	example, _, _ := strings.Cut(config.Reference(), "\n")
	for _, file := range []string{kubernetesBase + "/fanout.yaml", "compose/fanout.yaml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(text), "\n")
		assert.Equal(t, example, first, file)
		require.NoError(t, follows(t, "../config/fanout.schema.json")(text), file)
		var read map[string]any
		require.NoError(t, yaml.Unmarshal(text, &read))
		for _, secret := range regexp.MustCompile(`(?m)^ *(?:dsn|url|prometheus|operator): (.*)$`).FindAllStringSubmatch(string(text), -1) {
			assert.Regexp(t, `^\$\{[A-Z_]+\}$`, secret[1], file)
		}
	}
}
