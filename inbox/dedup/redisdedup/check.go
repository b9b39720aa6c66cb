package redisdedup

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Finding is a setting of a server that can lose what is remembered.
type Finding struct {
	// Server is its address.
	Server string
	// Setting and Value, as the server has them; the value is empty where the server does not tell.
	Setting, Value string
	// Severe findings rule tokens out: messages would be lost, without a crash or with any.
	Severe bool
	// Meaning says what is lost, and what to do.
	Meaning string
}

// String is one line.
func (f Finding) String() string {
	severity := "note"
	if f.Severe {
		severity = "severe"
	}
	return fmt.Sprintf("%s: %s: %s is %q: %s", severity, f.Server, f.Setting, f.Value, f.Meaning)
}

// Check asks each server (of a cluster, each primary) how durable its writes are, by INFO and
// CONFIG GET, and returns what it has found, none for nothing to complain about. What the account
// may not ask is a finding too. The error is that of a server that does not answer.
func Check(ctx context.Context, client redis.UniversalClient) ([]Finding, error) {
	var findings []Finding
	var mu sync.Mutex
	one := func(ctx context.Context, server redis.Cmdable, name string) error {
		found, err := checkServer(ctx, server, name)
		mu.Lock()
		defer mu.Unlock()
		findings = append(findings, found...)
		return err
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error { return one(ctx, server, server.Options().Addr) })
	case *redis.Client:
		err = one(ctx, c, c.Options().Addr)
	default:
		err = one(ctx, c, "server")
	}
	return findings, wrap("check", err)
}

// server is what one server says of itself.
type server struct {
	name     string
	findings []Finding
}

func (s *server) find(severe bool, setting, value, meaning string) {
	s.findings = append(s.findings, Finding{Server: s.name, Setting: setting, Value: value, Severe: severe, Meaning: meaning})
}

func checkServer(ctx context.Context, client redis.Cmdable, name string) ([]Finding, error) {
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	s := &server{name: name}
	s.eviction(setting(ctx, client, "maxmemory-policy"))
	info := facts(ctx, client, "persistence")
	switch info["aof_enabled"] {
	case "1":
		s.fsync(setting(ctx, client, "appendfsync"))
		s.rewrite(setting(ctx, client, "no-appendfsync-on-rewrite"))
		if status := info["aof_last_write_status"]; status != "ok" {
			s.find(true, "aof_last_write_status", status, "the append-only file cannot be written: look at the server's disk and log")
		}
	case "0":
		s.find(true, "appendonly", "no", "a restart loses all that was written since the last snapshot: set appendonly yes")
	default:
		s.find(true, "appendonly", "", unknown)
	}
	replication := facts(ctx, client, "replication")
	switch role := replication["role"]; role {
	case "master":
		if n := replication["connected_slaves"]; n != "" && n != "0" {
			s.find(false, "connected_slaves", n, "a failover loses what the replica has not got yet: set WithReplicas, and min-replicas-to-write at the server")
		}
	case "":
		s.find(true, "role", "", unknown)
	default:
		s.find(true, "role", role, "a replica answers from the past, and takes no writes: connect to the primary")
	}
	return s.findings, nil
}

const unknown = "the server does not tell: ask who runs it, or let the account call INFO and CONFIG GET"

func (s *server) eviction(policy string) {
	switch {
	case policy == "":
		s.find(true, "maxmemory-policy", "", unknown)
	case policy == "noeviction":
	case strings.HasPrefix(policy, "volatile"):
		s.find(false, "maxmemory-policy", policy, "when memory is short, entries of a Store are deleted: their messages may be processed twice. Tokens stay. Set noeviction")
	default:
		s.find(true, "maxmemory-policy", policy, "when memory is short, tokens are deleted: their messages are NEVER processed; and entries of a Store. Set noeviction")
	}
}

func (s *server) fsync(policy string) {
	switch policy {
	case "always":
	case "everysec":
		s.find(false, "appendfsync", policy, "a crash of the machine loses up to about a second of writes, and a message whose token is lost is NEVER processed: set always")
	case "":
		s.find(true, "appendfsync", "", unknown)
	default:
		s.find(true, "appendfsync", policy, "a crash of the machine loses what the system has not written yet, tens of seconds: set everysec, or always for tokens")
	}
}

// rewrite is about a setting that takes appendfsync back for as long as the server rewrites its
// file or takes a snapshot.
func (s *server) rewrite(skips string) {
	switch skips {
	case "no":
	case "":
		s.find(true, "no-appendfsync-on-rewrite", "", unknown)
	default:
		s.find(true, "no-appendfsync-on-rewrite", skips,
			"while the append-only file is rewritten, a crash of the machine loses what the system has not written yet, tens of seconds, whatever appendfsync says: set no")
	}
}

// setting is empty where the server does not tell.
func setting(ctx context.Context, client redis.Cmdable, name string) string {
	return client.ConfigGet(ctx, name).Val()[name]
}

// facts of a section of INFO.
func facts(ctx context.Context, client redis.Cmdable, section string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(client.Info(ctx, section).Val()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}
