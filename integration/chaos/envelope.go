//go:build unix

package chaos

import (
	"encoding/json"
	"slices"
	"sort"
	"strings"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// What may be in a message that leaves, by the path in its JSON; "*" stands for everything below.
// These lists are written by hand, from docs/guarantees.md and the CloudEvents specification, and
// share nothing with the code that makes the messages.
var (
	externalForm = []string{
		"data.*",
		"metadata.headers.id", "metadata.headers.time", "metadata.headers.type", "metadata.headers.stream",
		"metadata.headers.traceparent", "metadata.headers.idempotency_key", "metadata.headers.deadline",
		"metadata.domain.fqn", "metadata.domain.kind", "metadata.domain.origin_stream", "metadata.domain.stream_category", "metadata.domain.version",
		"metadata.domain.sequence_id", "metadata.domain.correlation_id", "metadata.domain.causation_id",
		"metadata.envelope.specversion", "metadata.extensions.*",
	}
	cloudEvents = []string{
		"data.*", "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "partitionkey", "sequence",
		"correlationid", "causationid", "traceparent", "tracestate",
	}
)

// fieldsMayLeave are the allowed flat fields beside the payload.
var fieldsMayLeave = []string{"id", "type", "ordering_key", "correlation_id", "content-type", "traceparent", "tracestate"}

// leaks names what a message in a form that leaves contains and must not contain.
func leaks(mayLeave []string, fields map[string]string, payload []byte) []string {
	var found []string
	for name := range fields {
		if !slices.Contains(fieldsMayLeave, name) {
			found = append(found, "field "+name)
		}
	}
	if fields["type"] == scenario.AuditedType {
		found = append(found, "an internal event")
	}
	var content any
	if err := json.Unmarshal(payload, &content); err != nil {
		return append(found, "no JSON")
	}
	walk("", content, func(path string) {
		if !allowed(mayLeave, path) {
			found = append(found, path)
		}
	})
	sort.Strings(found)
	return found
}

func allowed(list []string, path string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		prefix, open := strings.CutSuffix(entry, "*")
		return open && strings.HasPrefix(path, prefix) || entry == path
	})
}

// walk calls f with the path of each leaf.
func walk(path string, value any, f func(path string)) {
	object, ok := value.(map[string]any)
	if !ok {
		f(path)
		return
	}
	for name, inner := range object {
		walk(strings.TrimPrefix(path+"."+name, "."), inner, f)
	}
}
