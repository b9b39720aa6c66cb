package deploy_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
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

const (
	kubernetesBase = "kubernetes/base"
	pod            = "spec.template.spec."
	container      = pod + "containers.0."
)

// object is one of Kubernetes' objects, as JSON has it.
type object map[string]any

// at returns the value at a path such as spec.ports.0.targetPort, or nil.
func (o object) at(path string) (value any) {
	value = map[string]any(o)
	for step := range strings.SplitSeq(path, ".") {
		switch below := value.(type) {
		case map[string]any:
			value = below[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(below) {
				return nil
			}
			value = below[i]
		default:
			return nil
		}
	}
	return value
}

// variables returns the variables of the first container, with a test's value for each secret.
func (o object) variables(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, entry := range o.at(container + "env").([]any) {
		variable := object(entry.(map[string]any))
		name := variable.at("name").(string)
		values[name], _ = variable.at("value").(string)
		if strings.HasSuffix(name, "_URL") || strings.HasSuffix(name, "_TOKEN") {
			assert.Equal(t, []any{"fanout", name, nil}, []any{variable.at("valueFrom.secretKeyRef.name"), variable.at("valueFrom.secretKeyRef.key"), variable.at("value")})
			values[name] = "redis://" + strings.ToLower(name) + ":6379/0"
		}
	}
	return values
}

// built returns the objects of the base by kind, as kustomize makes them. Kubernetes' schema accepts each.
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
		made, err := resource.Map()
		require.NoError(t, err)
		require.NotContains(t, byKind, resource.GetKind())
		byKind[resource.GetKind()] = made
	}
	return byKind
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	objects := built(t)
	assert.ElementsMatch(t, []string{"ConfigMap", "Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount"}, slices.Collect(maps.Keys(objects)))
	relay, job := objects["Deployment"], objects["Job"]
	labels := relay.at("spec.template.metadata.labels")
	for kind, path := range map[string]string{
		"Deployment": "spec.selector.matchLabels", "Service": "spec.selector", "PodDisruptionBudget": "spec.selector.matchLabels", "NetworkPolicy": "spec.podSelector.matchLabels",
	} {
		require.NotEmpty(t, objects[kind].at(path), kind)
		assert.Subset(t, labels, objects[kind].at(path), kind)
	}
	assert.Subset(t, job.at("spec.template.metadata.labels"), objects["NetworkPolicy"].at("spec.podSelector.matchLabels"))

	for _, o := range []object{relay, job} {
		assert.Equal(t, objects["ConfigMap"].at("metadata.name"), o.at(pod+"volumes.0.configMap.name"), "with the hash of its content")
		for path, want := range map[string]any{
			pod + "securityContext.runAsNonRoot": true, container + "securityContext.allowPrivilegeEscalation": false,
			container + "securityContext.readOnlyRootFilesystem": true, container + "securityContext.capabilities.drop": []any{"ALL"},
		} {
			assert.Equal(t, want, o.at(path), path)
		}
		assert.Contains(t, o.at(container+"args"), "/etc/fanout/fanout.yaml")
	}

	file := t.TempDir() + "/fanout.yaml"
	require.NoError(t, os.WriteFile(file, []byte(objects["ConfigMap"].at("data").(map[string]any)["fanout.yaml"].(string)), 0o600))
	cfg := loaded(t, file, relay.variables(t))
	loaded(t, file, job.variables(t), config.WithUnsetVariables("consumers", "brokers", "monitor")) // as the command reads it
	grace, err := strconv.Atoi(strings.TrimSpace(yamlOf(t, relay.at(pod+"terminationGracePeriodSeconds"))))
	require.NoError(t, err)
	graceful(t, cfg, time.Duration(grace)*time.Second)
	assert.Equal(t, "0.0.0.0:8088", cfg.Monitor.Listen)
	port := relay.at(container + "ports.0.name")
	assert.Equal(t, port, objects["Service"].at("spec.ports.0.targetPort"))
	for name, path := range map[string]string{"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"} {
		assert.Equal(t, []any{path, port}, []any{relay.at(container + name + ".httpGet.path"), relay.at(container + name + ".httpGet.port")}, name)
	}
}

func yamlOf(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// Each installed configuration follows the schema, and names each secret as a variable.
func TestInstalledConfigurations(t *testing.T) {
	t.Parallel()
	for _, file := range []string{kubernetesBase + "/fanout.yaml", "compose/fanout.yaml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, follows(t, "../config/fanout.schema.json")(text), file)
		for _, secret := range regexp.MustCompile(`(?m)^ *(?:dsn|url|prometheus|operator): (.*)$`).FindAllStringSubmatch(string(text), -1) {
			assert.Regexp(t, `^\$\{[A-Z_]+\}$`, secret[1], file)
		}
	}
}
