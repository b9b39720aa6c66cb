package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	Parameters []struct {
		Name, In    string
		Description string
	} `json:"parameters"`
	RequestBody *struct {
		Content map[string]struct{ Schema *schema } `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct{ Schema *schema } `json:"content"`
	} `json:"responses"`
	Security *[]any `json:"security"`
}

type schema struct {
	Ref                  string             `json:"$ref"`
	Type                 any                `json:"type"`
	Enum                 []string           `json:"enum"`
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	AdditionalProperties any                `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	OneOf                []*schema          `json:"oneOf"`
	Description          string             `json:"description"`
	name                 string
}

// judge compares answers with the document, and notes which properties it has seen.
type judge struct {
	document

	seen map[string]bool
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	j := &judge{seen: map[string]bool{}}
	require.NoError(t, json.Unmarshal(openAPI, &j.document))
	for name, s := range j.Components.Schemas {
		s.name = name
	}
	return j
}

func (j *judge) resolve(s *schema) *schema {
	if s.Ref != "" {
		return j.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	return s
}

// check returns what is wrong with a value.
func (j *judge) check(s *schema, value any, at string) []string {
	if s = j.resolve(s); s == nil {
		return []string{at + ": the document lacks the schema"}
	}
	if len(s.OneOf) > 0 {
		var wrong []string
		for _, one := range s.OneOf {
			problems := j.check(one, value, at)
			if len(problems) == 0 {
				return nil
			}
			wrong = append(wrong, problems...)
		}
		return wrong
	}
	kind, _ := s.Type.(string)
	if kinds, several := s.Type.([]any); several {
		if value == nil {
			return nil
		}
		kind = kinds[0].(string)
	}
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, at+": "+fmt.Sprintf(format, args...)) }
	switch v := value.(type) {
	case map[string]any:
		if kind != "object" && kind != "" {
			bad("is an object, not %s", kind)
		}
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				bad("lacks %s", name)
			}
		}
		for name, field := range v {
			if property := s.Properties[name]; property != nil {
				j.seen[s.name+"."+name] = true
				problems = append(problems, j.check(property, field, at+"."+name)...)
			} else if extra, ok := s.AdditionalProperties.(map[string]any); ok {
				text, err := json.Marshal(extra)
				if err != nil {
					bad("%s", err)
				}
				var of schema
				_ = json.Unmarshal(text, &of)
				problems = append(problems, j.check(&of, field, at+"."+name)...)
			} else if s.AdditionalProperties == false {
				bad("%s is not described", name)
			}
		}
	case []any:
		if kind != "array" {
			bad("is a list, not %s", kind)
			break
		}
		for i, item := range v {
			problems = append(problems, j.check(s.Items, item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case string:
		if kind != "string" && kind != "" || len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
			bad("is %q, not %s %q", v, kind, s.Enum)
		}
	case float64:
		if kind != "number" && (kind != "integer" || v != float64(int64(v))) {
			bad("is %v, not %s", v, kind)
		}
	case bool:
		if kind != "boolean" {
			bad("is %v, not %s", v, kind)
		}
	case nil:
		if kind != "null" {
			bad("is null, not %s", kind)
		}
	}
	return problems
}

// full is a store in which every field of every answer has something to say.
func full(id string) *fake {
	last := &outbox.LastError{Acknowledged: true, Class: "retryable", Message: "no", At: start, Attempt: 2}
	now := time.Now()
	f := (&fake{
		pauses:    []admin.Pause{{Broker: "default", Since: start, By: "ann", Reason: "why"}},
		blocked:   []admin.KeyBlock{{Broker: "default", Key: "k", MessageID: id, Status: "failed", Reason: "backoff", Since: start, Until: start, Followers: admin.Count{N: 3}, LastError: last}},
		instances: []admin.Instance{{ID: uuid.New(), Name: "a", SeenAt: now, StartedAt: start, Work: []admin.Work{{Worker: "w", Broker: "default", Rows: 2, Since: start}}, Unavailable: []admin.Unavailable{{Broker: "default", Destination: "s"}}, Unreadable: "column pid is no whole number"}},
		audit:     []admin.AuditEntry{{ID: 1, Actor: "ann", Via: "cli", Action: "requeue", Filter: `{"type": "T"}`, StartedAt: start, EndedAt: start, Failure: "no"}},
		overview: func(o *admin.BrokerOverview) {
			o.Deferred = admin.Count{N: 7, More: true}
			o.BlockedKeys, o.Held, o.Scheduled, o.Unacknowledged = o.Deferred, o.Deferred, o.Deferred, o.Deferred
			o.LastPublished = now
		},
	}).add(2, func(i int, r *admin.Record) {
		*r = admin.Record{
			ID: r.ID, MessageID: id, Broker: []string{"default", "partner"}[i], Status: outbox.StatusAbandoned, State: outbox.StateBehind, Stream: "s", Type: "T", OrderingKey: "k", Shard: 1, Priority: 1, Deferred: true, Deferral: &admin.Deferral{Reason: "backoff", MessageID: id, Since: start, Until: start},
			ContentType: "c", AggregateType: "a", AggregateID: "1", CorrelationID: "c", CausationID: "d", TenantID: "t", Attempts: 1, Crashes: 1,
			CreatedAt: start, AvailableAt: start, ExpiresAt: start, LockedUntil: start, PublishedAt: start, FinishedAt: start, LockedBy: "w", BrokerMessageID: "m",
			LastError: last, PayloadBytes: 2, Payload: [][]byte{[]byte("{}"), {0xff}}[i], Headers: []string{`{"a": "b"}`, "broken"}[i],
		}
	}).add(2, func(_ int, r *admin.Record) { r.Broker, r.Status = "partner", outbox.StatusPublished })
	return f
}

// What the document describes is what the handler has, and what it answers; and the other way
// round.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	j, id := newJudge(t), uuid.NewString()
	store := full(id)
	stats := []relay.Stats{{Database: "main", Broker: "default", Breaker: relay.BreakerOpen, Listener: relay.ListenerConnected, UnavailableDestinations: []string{"x"}}}
	h := newHandler(t, store, func(cfg *Config) {
		progress := func(_ context.Context, messages []uuid.UUID, _ []string) (map[uuid.UUID][]ConsumerProgress, error) {
			return map[uuid.UUID][]ConsumerProgress{messages[0]: {{Source: "s", Status: "dead_letter", Attempts: 2, At: start, LastError: "no"}}}, nil
		}
		broken := func(context.Context, []uuid.UUID, []string) (map[uuid.UUID][]ConsumerProgress, error) {
			return nil, http.ErrServerClosed
		}
		cfg.Console = NewConsole(map[string]admin.Administration{"main": store, "gone": &fake{down: http.ErrServerClosed}},
			WithNotKept("default", "archive"), WithConsumers(map[string]Consumer{"billing": {Broker: "partner", Progress: progress}, "mail": {Broker: "partner", Progress: broken}}))
		cfg.MaxCount = 1
		cfg.Stats = func() []relay.Stats { return stats }
		cfg.Metrics = http.NotFoundHandler()
	})
	h.sample(t.Context())
	h.sample(t.Context())

	t.Run("routes and parameters", func(t *testing.T) {
		t.Parallel()
		var described, served []string
		for path, methods := range j.Paths {
			for method, op := range methods {
				var params []string
				for _, p := range op.Parameters {
					assert.NotEmpty(t, p.Description, "%s %s", path, p.Name)
					if p.In == "query" {
						params = append(params, p.Name)
					}
				}
				slices.Sort(params)
				described = append(described, fmt.Sprintf("%s %s %q open=%v", strings.ToUpper(method), strings.ReplaceAll(path, "{file}", "*"), params, op.Security != nil && len(*op.Security) == 0))
			}
		}
		for i := range h.routes {
			r := &h.routes[i]
			params := slices.DeleteFunc(slices.Sorted(slices.Values(r.params)), func(p string) bool { return p == "*" })
			served = append(served, fmt.Sprintf("%s /%s %q open=%v", r.method, r.path, params, r.open))
		}
		assert.ElementsMatch(t, described, served)
	})

	check := func(path, method, target, body string, status int, headers header) {
		t.Helper()
		w := call(h, method, target, body, headers)
		require.Equal(t, status, w.Code, w.Body.String())
		responses := j.Paths[path][strings.ToLower(method)].Responses
		response, ok := responses[fmt.Sprint(status)]
		if !ok {
			response = responses["default"]
		}
		kind := w.Header().Get("Content-Type")
		content, ok := response.Content[kind]
		require.True(t, ok, "%s %s: %s is not described", method, path, kind)
		lines := []string{w.Body.String()}
		if kind == ndjson {
			lines = strings.Split(strings.TrimSpace(lines[0]), "\n")
		}
		for _, line := range lines {
			var value any
			require.NoError(t, json.Unmarshal([]byte(line), &value))
			assert.Empty(t, j.check(content.Schema, value, path))
		}
	}
	operator, viewer := as(operatorToken), as(viewerToken)
	db := "/api/outbox/{db}/"
	check("/api/outbox", "GET", "/api/outbox", "", 200, viewer)
	check("/api/outbox/history", "GET", "/api/outbox/history", "", 200, viewer)
	check("/api/outbox/consumers", "GET", "/api/outbox/consumers", "", 200, viewer)
	check(db+"messages", "GET", "/api/outbox/main/messages", "", 200, viewer)
	check(db+"messages/{id}", "GET", "/api/outbox/main/messages/"+id+"?payload=1", "", 200, operator)
	check(db+"trace", "GET", "/api/outbox/main/trace?term=c", "", 200, viewer)
	check(db+"trace", "GET", "/api/outbox/main/trace?term="+store.rows[3].MessageID, "", 200, viewer)
	check(db+"trace", "GET", "/api/outbox/main/trace?term=nothing", "", 200, viewer)
	check(db+"trace", "GET", "/api/outbox/gone/trace?term=nothing", "", 200, viewer)
	check(db+"trace", "GET", "/api/outbox/main/trace?term=c&by=x", "", 400, viewer)
	check(db+"failures", "GET", "/api/outbox/main/failures", "", 200, viewer)
	check(db+"blocked", "GET", "/api/outbox/main/blocked", "", 200, viewer)
	check(db+"workers", "GET", "/api/outbox/main/workers", "", 200, viewer)
	check(db+"audit", "GET", "/api/outbox/main/audit", "", 200, viewer)
	check(db+"actions", "POST", "/api/outbox/main/actions", `{"action": "requeue", "dry_run": true}`, 200, operator)
	check(db+"actions", "POST", "/api/outbox/main/actions", `{"action": "requeue", "type": "*"}`, 200, operator.with("Accept", ndjson))
	check(db+"brokers/{broker}/pause", "POST", "/api/outbox/main/brokers/x/pause", `{}`, 200, operator)
	check(db+"brokers/{broker}/resume", "POST", "/api/outbox/main/brokers/x/resume", `{}`, 200, operator)
	check("/api/me", "GET", "/api/me", "", 200, viewer)
	check("/api/login", "POST", "/api/login", `{"token": "`+viewerToken+`"}`, 200, nil)
	check("/api/logout", "POST", "/api/logout", "", 200, nil)
	check("/healthz", "GET", "/healthz", "", 200, nil)
	check("/readyz", "GET", "/readyz", "", 503, nil)
	check("/openapi.json", "GET", "/openapi.json", "", 200, nil)
	check(db+"audit", "GET", "/api/outbox/main/audit?limit=x", "", 400, viewer)

	store.add(700, failed("retryable", "x %d"))
	store.after = func() { store.down = http.ErrServerClosed }
	check(db+"actions", "POST", "/api/outbox/main/actions", `{"action": "requeue", "type": "*"}`, 200, operator.with("Accept", ndjson))

	bodies := map[string]reflect.Type{
		"Action": reflect.TypeFor[actionRequest](), "Reason": reflect.TypeFor[reasonBody](), "Token": reflect.TypeFor[loginBody](),
	}
	for name, s := range j.Components.Schemas {
		assert.NotEmpty(t, s.Description, name)
		if body := bodies[name]; body != nil {
			var fields []string
			for i := range body.NumField() {
				fields = append(fields, body.Field(i).Tag.Get("json"))
			}
			assert.ElementsMatch(t, fields, slices.Collect(maps.Keys(s.Properties)), name)
			continue
		}
		for property, of := range s.Properties {
			assert.True(t, j.seen[name+"."+property], "%s.%s is described, but no answer has it", name, property)
			assert.True(t, of.Description != "" || of.Ref != "", "%s.%s", name, property)
		}
	}
}
