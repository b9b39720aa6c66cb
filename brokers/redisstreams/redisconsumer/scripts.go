package redisconsumer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/claim.lua
	claimSource string
	//go:embed lua/own.lua
	ownSource string
	//go:embed lua/dead.lua
	deadSource string
	//go:embed lua/leave.lua
	leaveSource string
	//go:embed lua/stats.lua
	statsSource string
	//go:embed lua/resend.lua
	resendSource string

	//go:embed lua/digests
	digests string // in the form of sha1sum

	claimScript  = newScript("claim.lua", claimSource)
	ownScript    = newScript("own.lua", ownSource)
	deadScript   = newScript("dead.lua", deadSource)
	leaveScript  = newScript("leave.lua", leaveSource)
	statsScript  = newScript("stats.lua", statsSource)
	resendScript = newScript("resend.lua", resendSource)
)

// errAnswer is what no server of ours says.
var errAnswer = errors.New("redisconsumer: the server's answer is not understood: a proxy, or a server that only resembles Redis?")

// A script is one of ours, known to servers by its digest.
type script struct{ source, digest string }

// newScript takes the digest, a SHA-1, from what a test has written: a process in which FIPS 140 is
// enforced may not compute it. A wrong one costs a round trip, as of a script that the server does
// not know.
func newScript(name, source string) script {
	for line := range strings.Lines(digests) {
		if digest, of, _ := strings.Cut(strings.TrimSpace(line), "  "); of == name {
			return script{source, digest}
		}
	}
	panic("brokers/redisstreams/redisconsumer: no digest of " + name) // files are part of the program
}

// once is a command that the client must not repeat by itself: what it has done the first time
// would be forgotten.
type once struct{ redis.Cmder }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// run runs a script, and teaches it to a server that does not know it.
func (s script) run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (any, error) {
	call := make([]any, 0, 3+len(keys)+len(args))
	call = append(call, "evalsha", s.digest, len(keys))
	for _, key := range keys {
		call = append(call, key)
	}
	call = append(call, args...)
	answer, err := process(ctx, client, call)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		call[0], call[1] = "eval", s.source
		answer, err = process(ctx, client, call)
	}
	return answer, err
}

func process(ctx context.Context, client redis.UniversalClient, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	if err := client.Process(ctx, once{cmd}); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// numbers runs a script that answers with a number for each of n entries.
func (s script) numbers(ctx context.Context, client redis.UniversalClient, n int, key string, args ...any) ([]int64, error) {
	answer, err := s.run(ctx, client, []string{key}, args...)
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok || len(list) != n {
		return nil, fmt.Errorf("%w: %d numbers were due", errAnswer, n)
	}
	numbers := make([]int64, n)
	for i := range list {
		if numbers[i], ok = list[i].(int64); !ok {
			return nil, fmt.Errorf("%w: %v is no number", errAnswer, list[i])
		}
	}
	return numbers, nil
}

// entriesOf reads the answer of claim.lua.
func entriesOf(answer any) ([]taken, error) {
	list, ok := answer.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: a list was due", errAnswer)
	}
	entries := make([]taken, 0, len(list))
	for _, element := range list {
		parts, _ := element.([]any)
		if len(parts) == 0 {
			return nil, fmt.Errorf("%w: an entry was due", errAnswer)
		}
		e := taken{}
		if e.id, ok = parts[0].(string); !ok {
			return nil, fmt.Errorf("%w: %v is no id", errAnswer, parts[0])
		}
		if len(parts) == 3 {
			count, isNumber := parts[1].(int64)
			values, isList := parts[2].([]any)
			if !isNumber || !isList {
				return nil, fmt.Errorf("%w: of the entry %s", errAnswer, e.id)
			}
			e.count, e.fields = count, fieldsOf(values)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// taken is an entry as claim.lua has it; fields is nil where the stream does not have it any more.
type taken struct {
	id     string
	count  int64
	fields map[string]string
}

// fieldsOf makes a map of names and values by turns. Of a name that occurs twice the last counts, as with
// what the client reads.
func fieldsOf(values []any) map[string]string {
	fields := make(map[string]string, len(values)/2)
	for at := 0; at+1 < len(values); at += 2 {
		name, _ := values[at].(string)
		fields[name], _ = values[at+1].(string)
	}
	return fields
}
