package redisdedup_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox/dedup/redisdedup"
)

// says answers INFO and CONFIG GET in place of a server.
type says map[string]string

func (says) DialHook(next redis.DialHook) redis.DialHook { return next }
func (says) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s says) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		switch c := command.(type) {
		case *redis.MapStringStringCmd:
			name := c.Args()[2].(string)
			c.SetVal(map[string]string{name: s[name]})
		case *redis.StringCmd:
			if command.Name() != "info" {
				return next(ctx, command)
			}
			text := "# Section\r\n"
			for name, value := range s {
				text += fmt.Sprintf("%s:%s\r\n", name, value)
			}
			c.SetVal(text)
		default:
			return next(ctx, command)
		}
		return nil
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := says{
		"maxmemory-policy": "noeviction", "aof_enabled": "1", "appendfsync": "always", "aof_last_write_status": "ok", "role": "master", "connected_slaves": "0",
		"no-appendfsync-on-rewrite": "no",
	}
	for _, c := range []struct {
		setting, value string
		severe         bool
		want           string
	}{
		{"maxmemory-policy", "allkeys-lru", true, "NEVER processed"},
		{"maxmemory-policy", "volatile-ttl", false, "twice"},
		{"aof_enabled", "0", true, "appendonly yes"},
		{"aof_enabled", "", true, "does not tell"},
		{"appendfsync", "everysec", false, "a second"},
		{"appendfsync", "no", true, "tens of seconds"},
		{"no-appendfsync-on-rewrite", "yes", true, "whatever appendfsync says"},
		{"no-appendfsync-on-rewrite", "", true, "does not tell"},
		{"aof_last_write_status", "err", true, "cannot be written"},
		{"role", "slave", true, "replica"},
		{"connected_slaves", "2", false, "WithReplicas"},
		{"", "", false, ""},
	} {
		t.Run(c.setting+" "+c.value, func(t *testing.T) {
			t.Parallel()
			client := open(t)
			answers := maps.Clone(good)
			answers[c.setting] = c.value
			client.AddHook(answers)
			findings, err := redisdedup.Check(t.Context(), client)
			require.NoError(t, err)
			if c.want == "" {
				require.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			require.Equal(t, c.severe, findings[0].Severe)
			require.Contains(t, findings[0].Meaning, c.want)
			require.Equal(t, client.Options().Addr, findings[0].Server)
			require.True(t, strings.HasPrefix(findings[0].String(), map[bool]string{true: "severe", false: "note"}[c.severe]))
		})
	}
}

// An account without the right to INFO and CONFIG GET gets a finding for each; a server that does not
// answer is an error.
func TestCheckOfSilentServer(t *testing.T) {
	t.Parallel()
	client := open(t)
	client.AddHook(says{})
	findings, err := redisdedup.Check(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, findings, 3)
	for _, finding := range findings {
		require.True(t, finding.Severe)
		require.Contains(t, finding.Meaning, "does not tell")
	}
	silent := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer silent.Close()
	_, err = redisdedup.Check(t.Context(), silent)
	require.ErrorContains(t, err, "redisdedup: check")
}

func TestCheckOfRealServer(t *testing.T) {
	t.Parallel()
	client := open(t)
	findings, err := redisdedup.Check(t.Context(), client)
	require.NoError(t, err)
	policy := client.ConfigGet(t.Context(), "maxmemory-policy").Val()["maxmemory-policy"]
	for _, finding := range findings {
		t.Log(finding)
		require.NotContains(t, finding.Meaning, "does not tell")
		require.False(t, finding.Setting == "maxmemory-policy" && policy == "noeviction")
	}
}
